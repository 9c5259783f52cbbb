"""Export a trained assigner as one ONNX file, for programs without torch.

The graph is written layer by layer: an assigner is a handful of operators, while torch's exporter
needs another package, logs and warns on its own, and differs between versions.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import prcut
from prcut.errors import InvalidInputError, PRCutError
from prcut.runtime.folder import Folder, locate
from prcut.training.assigner.network import Assigner

# the first version in which Softmax and ArgMax are defined as they are used here
_OLDEST_OPSET = 13
# read by runtimes since 2022
_DEFAULT_OPSET = 17
# protobuf holds no more in one message
_MAX_BYTES = 2**31 - 1
# an upper bound for everything but the weights
_GRAPH_BYTES = 2**20


def export_onnx(path: str | Path, assigner: Assigner, *, opset: int | None = None) -> None:
    """Write an assigner as an ONNX file, complete or not at all.

    Its input is ``features``, float32 of shape (batch, n_features) with any batch; its outputs are
    ``probs``, float32 of shape (batch, n_clusters), and ``labels``, int64 of shape (batch,), the
    first largest of them. Weights are inside the file, as float32, with origin, scale and weight
    normalisation applied to them. The file's metadata says who made it, and has the names and the
    numbers above.

    With onnxruntime, a separate package::

        export_onnx("model.onnx", assigner)
        session = onnxruntime.InferenceSession("model.onnx")
        probs, labels = session.run(None, {"features": features})
    """
    # a subclass may compute something else from the same layers
    if type(assigner) is not Assigner:
        raise InvalidInputError(
            f"assigner is of type {type(assigner).__name__}, expected Assigner; pass the one "
            "inside a wrapper, or those of a hierarchy one by one."
        )
    # buffers too: they are as wide as the features
    n_bytes = _GRAPH_BYTES + 4 * sum(value.numel() for value in assigner.state_dict().values())
    if n_bytes > _MAX_BYTES:
        raise InvalidInputError(
            f"the assigner takes {n_bytes:,} bytes, one ONNX file holds at most {_MAX_BYTES:,}; "
            "use save_model instead."
        )
    try:
        import onnx
    except ImportError as error:
        raise PRCutError("exporting to ONNX needs onnx; pip install 'prcut[onnx]'.") from error
    newest = onnx.defs.onnx_opset_version()
    opset = _DEFAULT_OPSET if opset is None else opset
    if type(opset) is not int or not _OLDEST_OPSET <= opset <= newest:
        raise InvalidInputError(
            f"opset={opset!r} must be a whole number from {_OLDEST_OPSET} to {newest}, the newest "
            f"that onnx {onnx.__version__} knows."
        )
    folder, name = _target(path)
    with torch.no_grad():
        content: bytes = _model(assigner, opset).SerializeToString()
    folder.write_bytes(name, iter([content]))


def _target(path: str | Path) -> tuple[Folder, str]:
    """Return the folder and the name of the file to write."""
    from pyarrow import fs

    filesystem, full = locate(path)
    if filesystem.get_file_info(full).type == fs.FileType.Directory:
        raise InvalidInputError(f"{path} is a folder; pass a file in it, such as model.onnx.")
    whole = Path(full)
    if whole.name.startswith("."):
        raise InvalidInputError(f"{path} is a hidden file; pass a name such as model.onnx.")
    return Folder(whole.parent.as_posix(), filesystem), whole.name


def _model(assigner: Assigner, opset: int) -> Any:
    """Build the ONNX model: layers, softmax, argmax."""
    from onnx import TensorProto, helper, numpy_helper

    nodes: list[Any] = []
    weights: list[Any] = []

    def constant(name: str, value: Tensor) -> str:
        weights.append(numpy_helper.from_array(value.contiguous().numpy(), name))
        return name

    def add(operator: str, inputs: list[str], output: str, **attributes: Any) -> str:
        nodes.append(helper.make_node(operator, inputs, [output], name=output, **attributes))
        return output

    if assigner.hidden:  # runtimes warn about unused constants
        numbers = {"half": 0.5, "one": 1.0, "root_2": math.sqrt(2)}
        half, one, root = (constant(name, torch.tensor(value)) for name, value in numbers.items())
    rows = "features"
    for number, layer in enumerate([*assigner.body, assigner.head]):
        if isinstance(layer, nn.Linear):
            weight, bias = _weight_and_bias(layer)
            inputs = [rows, constant(f"weight_{number}", weight), constant(f"bias_{number}", bias)]
            rows = add("Gemm", inputs, f"linear_{number}", transB=1)
        else:  # a GELU, x (1 + erf(x / √2)) / 2: as one operator it only exists since opset 20
            scaled = add("Div", [rows, root], f"scaled_{number}")
            shifted = add("Add", [add("Erf", [scaled], f"erf_{number}"), one], f"shifted_{number}")
            doubled = add("Mul", [rows, shifted], f"doubled_{number}")
            rows = add("Mul", [doubled, half], f"gelu_{number}")
    probs = add("Softmax", [rows], "probs", axis=-1)
    add("ArgMax", [probs], "labels", axis=-1, keepdims=0)
    graph = helper.make_graph(
        nodes,
        "prcut",
        [_tensor("features", TensorProto.FLOAT, assigner.n_features)],
        [
            _tensor("probs", TensorProto.FLOAT, assigner.n_clusters),
            _tensor("labels", TensorProto.INT64),
        ],
        initializer=weights,
    )
    operators = helper.make_opsetid("", opset)
    model = helper.make_model(
        graph,
        opset_imports=[operators],
        # the newest would exclude runtimes that know the operators
        ir_version=helper.find_min_ir_version_for([operators]),
        producer_name="prcut",
        producer_version=prcut.__version__,
        doc_string="Cluster probabilities of rows, and the likeliest cluster of each.",
    )
    about = {
        "prcut_version": prcut.__version__,
        "n_clusters": str(assigner.n_clusters),
        "n_features": str(assigner.n_features),
        "inputs": ",".join(one.name for one in graph.input),
        "outputs": ",".join(one.name for one in graph.output),
    }
    helper.set_model_props(model, about)
    return model


def _tensor(name: str, dtype: int, *width: int) -> Any:
    """Describe an input or output with any number of rows."""
    from onnx import helper

    return helper.make_tensor_value_info(name, dtype, ["batch", *width])


def _weight_and_bias(layer: nn.Linear) -> tuple[Tensor, Tensor]:
    """Return the matrix and the bias of a layer, as the assigner computes them."""
    weight: Tensor = layer.weight
    bias: Tensor = layer.bias
    standardized = dict(layer.named_buffers(recurse=False))
    if standardized:  # the first layer
        if standardized["origin"].ndim == 2:
            raise InvalidInputError(
                "the model was fitted to float64 rows so far from 0 that float32, which an ONNX "
                "file reads, blurs them; subtract their mean before fit."
            )
        weight = weight / standardized["scale"]
        bias = bias - weight @ standardized["origin"]
    return weight.float().cpu(), bias.float().cpu()
