"""Commands about data: embed, dedup, sample; and about this machine: plan, doctor."""

from __future__ import annotations

from typing import Annotated, Any

from prcut.errors import InvalidInputError
from prcut.ui.cli import options
from prcut.ui.cli.console import Messages
from prcut.ui.cli.options import argument, option
from prcut.ui.cli.shared import Results, command, open_engine

# neighbours per row that `prcut plan` counts: the default of a fit on disk
_NEIGHBORS = 15
MODEL = "minilm, sentence-transformers:NAME, or a local model or .onnx file."


@command
def embed(
    messages: Messages,
    data: Annotated[str, argument("DATA", "A Parquet file, a folder of them, or a .txt file.")],
    model: Annotated[str, option("--model NAME", MODEL)],
    out: Annotated[str, option("--out,-o FILE", "Parquet or .npy file to write.")],
    column: Annotated[str | None, option("--column NAME", "Column of the texts or images.")] = None,
    batch_size: Annotated[int | None, option("--batch-size N", "64, or 256 on a GPU.")] = None,
    device: options.Device = "auto",
) -> Results:
    """Write the vector of every text or image of DATA to a Parquet or .npy file.

    The Parquet file has the columns of DATA and a column vector, float16, which prcut fit reads.
    Memory does not grow with the number of rows. The same command resumes an interrupted one.

    [bold]Examples[/bold]

    prcut embed texts.parquet --column body --model minilm --out vectors.parquet

    prcut embed photos.parquet --column jpeg --model ./clip --out vectors.npy
    """
    with messages.progress() as display:
        from prcut.curate.embed import embed_file

        how: dict[str, Any] = {"column": column, "batch_size": batch_size, "device": device}
        written = embed_file(data, model, out, on_progress=display.on_progress, **how)
    return {"embeddings": out, "rows": written.n_samples, "features": written.n_features}


@command
def dedup(
    messages: Messages,
    run_or_data: Annotated[str, argument("RUN_OR_DATA", f"A run folder, or data. {options.DATA}")],
    out: Annotated[str, option("--out,-o DIR", "Folder for the ids to keep and the groups.")],
    epsilon: Annotated[float, option("--epsilon X", "Largest distance of near-duplicates.")] = 0.05,
    metric: Annotated[str, option("--metric NAME", "cosine (1 − cosine) or euclidean.")] = "cosine",
    keep: Annotated[str, option("--keep WHICH", "exemplar, or best:COLUMN.")] = "exemplar",
    column: options.Column = None,
    id_column: options.IdColumn = None,
    seed: options.Seed = 0,
    memory: options.Memory = None,
    engine: options.EngineName = "local",
    address: options.Address = None,
) -> Results:
    """Find near-duplicates: write the ids to keep, and the groups, as Parquet.

    Rows within EPSILON of each other are near-duplicates. A chain of them is cut where its ratio
    cut is low. Each group keeps its exemplar, or the row with the largest value in a column.
    The same command resumes an interrupted one.

    [bold]Examples[/bold]

    prcut dedup embeddings.parquet --out unique --id-column id

    prcut dedup run --out unique --epsilon 0.02 --keep best:quality
    """
    from prcut.runtime.device import parse_bytes

    limit = None if memory is None else parse_bytes(memory)
    with messages.progress() as display:
        from prcut.curate.dedup import find_duplicates

        found = find_duplicates(
            run_or_data,
            out,
            epsilon=epsilon,
            metric=metric,  # type: ignore[arg-type]  # checked by it
            keep=keep,
            column=column,
            id_column=id_column,
            seed=seed,
            memory=limit,
            engine=open_engine(engine, address),
            on_progress=display.on_progress,
        )
    return {
        "kept": f"{out}/kept",
        "groups": f"{out}/groups",
        "rows": found.n_samples,
        "kept_rows": found.n_kept,
        "copies": found.n_copies,
        "n_groups": found.n_groups,
    }


@command
def sample(
    run: Annotated[str, argument("RUN", "A finished run folder with labels.")],
    out: Annotated[str, option("--out,-o FILE", "Parquet file of ids and labels to write.")],
    size: Annotated[int, option("--size,-n N", "Number of rows.")],
    balance: Annotated[str, option("--balance HOW", "tree, uniform or temperature:T.")] = "tree",
    seed: options.Seed = 0,
) -> Results:
    """Draw a balanced sample of the rows of a run: write their ids and labels as Parquet.

    The balance tree has equal quotas down the tree of clusters; uniform, equal quotas for all
    clusters; temperature:T, quotas by sizes to the power of 1/T. The same command draws the same
    rows.

    [bold]Examples[/bold]

    prcut sample run --out sample.parquet --size 1000 --balance temperature:2
    """
    from prcut.curate.sample import write_sample

    n_rows, n_clusters = write_sample(run, out, size, balance, seed=seed)
    return {"sample": out, "rows": n_rows, "n_clusters": n_clusters}


@command
def plan(
    rows: Annotated[str, option("--rows N", "Number of rows, such as 1e9.")],
    dim: Annotated[int, option("--dim N", "Features per row.")],
    clusters: Annotated[int, option("--clusters,--k,-k N", "Number of clusters.")],
    bytes_per_value: Annotated[int, option("--bytes-per-value N", "Bytes of a feature.")] = 4,
) -> tuple[Results, str]:
    """Estimate what a run on disk needs: disk, memory, core-hours, traffic.

    [bold]Examples[/bold]

    prcut plan --rows 1e9 --dim 768 --k 10000 --bytes-per-value 2
    """
    from prcut.graph.blocks.build import most_block_rows
    from prcut.runs import plan as capacity

    try:
        n_samples = int(float(rows))
    except (ValueError, OverflowError) as error:
        raise InvalidInputError(f"{rows=} is not a number such as 1e9.") from error
    block_rows = most_block_rows(n_samples)
    work = capacity.Workload(n_samples, dim, clusters, bytes_per_value, _NEIGHBORS, block_rows)
    stages = capacity.plan_stages(work)
    results = {
        "rows": n_samples,
        "blocks": work.n_blocks,
        "disk_bytes": capacity.disk_peak(stages),
        "leader_bytes": capacity.leader_memory(stages),
        "core_hours": sum(one.core_seconds for one in stages) / 3600,
        "stages": stages,
    }
    return results, capacity.show_plan(work)


@command
def doctor() -> tuple[Results, str]:
    """Show versions, threads, GPU, memory, disk, kernels, and packages that extras lack.

    Attach it to a bug report. Nothing is written or sent.

    [bold]Examples[/bold]

    prcut doctor --json
    """
    import os
    import platform
    import re
    import shutil
    from importlib import metadata

    import torch

    from prcut.runtime.device import available_memory, readable_bytes

    try:
        from prcut.search import kernels  # noqa: F401

        compiled = "compiled"
    except ImportError as error:  # which names the remedy
        compiled = f"missing: {error}"
    installed = {one.metadata["Name"].lower(): one.version for one in metadata.distributions()}
    versions = {"python": platform.python_version(), "prcut": metadata.version("prcut")}
    missing: dict[str, list[str]] = {}
    for line in metadata.requires("prcut") or ():
        name = re.split(r"[^\w.-]", line, maxsplit=1)[0]
        version = installed.get(name.lower(), "missing")
        extra = re.search(r"extra\s*==\s*['\"](.+?)['\"]", line)
        if not extra:
            versions[name] = version
        elif extra[1] not in ("bench", "dev", "docs") and version == "missing":
            missing.setdefault(extra[1], []).append(name)
    machine = {
        "platform": f"{platform.system()} {platform.machine()}",
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "gpu": "CUDA" if torch.cuda.is_available() else "none",
        "memory_free": readable_bytes(available_memory()),
        "disk_free": readable_bytes(shutil.disk_usage(".").free),
        "kernels": compiled,
    }
    lacks = {f"prcut[{extra}]": f"lacks {', '.join(names)}" for extra, names in missing.items()}
    lines = [f"{name:<18}  {value}" for name, value in {**versions, **machine, **lacks}.items()]
    if missing:
        lines.append(f"pip install 'prcut[{','.join(missing)}]' installs the missing packages")
    return {"versions": versions, **machine, "missing": missing}, "\n".join(lines)
