"""Export a trained assigner as one ONNX file, for programs without torch.

The graph is written layer by layer: an assigner is a handful of operators, while torch's exporter
needs another package, logs and warns on its own, and differs between versions.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import prcut
from prcut.errors import InvalidInputError, PRCutError
from prcut.runtime.folder import Folder
from prcut.training.assigner.network import Assigner

# the first with Gelu, which onnxruntime reads since 1.17 (2024)
_OPSET = 20
# one protobuf message holds no more
_MAX_BYTES = 2**31 - 1
# an upper bound for everything but the weights
_GRAPH_BYTES = 2**20


def export_onnx(path: str | Path, assigner: Assigner) -> None:
    """Write an assigner as an ONNX file, complete or not at all.

    Its input is ``features``, float32 (batch, n_features); its outputs are ``probs``, float32
    (batch, n_clusters), and ``labels``, int64 (batch,), the first largest of them. Weights are
    float32, with origin and scale of the rows applied to them.

    With onnxruntime, a separate package::

        export_onnx("model.onnx", assigner)
        session = onnxruntime.InferenceSession("model.onnx")
        probs, labels = session.run(None, {"features": features})
    """
    # a subclass may compute something else from the same layers
    if type(assigner) is not Assigner:
        raise InvalidInputError(f"assigner is a {type(assigner).__name__}, expected Assigner.")
    # buffers too: they are as wide as the features
    n_bytes = _GRAPH_BYTES + 4 * sum(value.numel() for value in assigner.state_dict().values())
    if n_bytes > _MAX_BYTES:
        raise InvalidInputError(
            f"the assigner takes {n_bytes:,} bytes, one ONNX file holds at most {_MAX_BYTES:,}; "
            "use save_model instead."
        )
    try:
        import onnx  # noqa: F401
    except ImportError as error:
        raise PRCutError("exporting to ONNX needs onnx; pip install 'prcut[onnx]'.") from error
    with torch.no_grad():
        content: bytes = _model(assigner).SerializeToString()
    home, _, name = str(path).rpartition("/")
    Folder(home or ".").write_bytes(name, iter([content]))


def _model(assigner: Assigner) -> Any:
    """Build the ONNX model: layers, softmax, argmax."""
    from onnx import TensorProto, helper, numpy_helper

    nodes: list[Any] = []
    weights: list[Any] = []

    def add(operator: str, inputs: list[str], output: str, **attributes: Any) -> str:
        nodes.append(helper.make_node(operator, inputs, [output], name=output, **attributes))
        return output

    rows = "features"
    for number, layer in enumerate([*assigner.body, assigner.head]):
        if not isinstance(layer, nn.Linear):
            rows = add("Gelu", [rows], f"gelu_{number}")
            continue
        names = [f"weight_{number}", f"bias_{number}"]
        for name, value in zip(names, _weight_and_bias(layer), strict=True):
            weights.append(numpy_helper.from_array(value.contiguous().numpy(), name))
        rows = add("Gemm", [rows, *names], f"linear_{number}", transB=1)
    probs = add("Softmax", [rows], "probs", axis=-1)
    add("ArgMax", [probs], "labels", axis=-1, keepdims=0)
    describe = helper.make_tensor_value_info
    inputs = [describe("features", TensorProto.FLOAT, ["batch", assigner.n_features])]
    outputs = [
        describe("probs", TensorProto.FLOAT, ["batch", assigner.n_clusters]),
        describe("labels", TensorProto.INT64, ["batch"]),
    ]
    operators = helper.make_opsetid("", _OPSET)
    return helper.make_model(
        helper.make_graph(nodes, "prcut", inputs, outputs, initializer=weights),
        opset_imports=[operators],
        # the newest would exclude runtimes that know the operators
        ir_version=helper.find_min_ir_version_for([operators]),
        producer_name="prcut",
        producer_version=prcut.__version__,
        doc_string="Cluster probabilities of rows, and the likeliest cluster of each.",
    )


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
