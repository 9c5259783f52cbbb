"""Data and runs in S3, against a server on loopback; credentials come from the environment."""

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import fs

from prcut.ui.cli.commands import main

pytest.importorskip("moto.server")
pytestmark = [
    pytest.mark.timeout(300),
    pytest.mark.filterwarnings("ignore::prcut.errors.DataWarning"),
]


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        for _ in range(300):
            with socket.socket() as knock:
                if knock.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(0.1)
        yield f"127.0.0.1:{port}"
    finally:
        server.kill()
        server.wait()


@pytest.fixture
def bucket(endpoint: str, monkeypatch: pytest.MonkeyPatch) -> fs.S3FileSystem:
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://{endpoint}")
    return fs.S3FileSystem(endpoint_override=endpoint, scheme="http", allow_bucket_creation=True)


@pytest.mark.costly("a whole run in a bucket, by the command line")
def test_fit_status_and_assign_in_a_bucket(
    bucket: fs.S3FileSystem, capsys: pytest.CaptureFixture[str]
) -> None:
    bucket.create_dir("bucket")
    rng = np.random.default_rng(0)
    centres = rng.normal(0, 3, (4, 8))
    for number in range(3):
        rows = centres[rng.integers(4, size=500)] + rng.normal(0, 0.4, (500, 8))
        lists = pa.FixedSizeListArray.from_arrays(pa.array(rows.astype(np.float32).ravel()), 8)
        table = pa.table({"id": pa.array(np.arange(500) + 500 * number), "x": lists})
        pq.write_table(table, f"bucket/data/{number}.parquet", filesystem=bucket)
    options = ["-k", "4", "--id-column", "id", "--memory", "100k"]
    options += ["--steps", "30", "--n-init", "1", "--quiet"]
    assert main(["fit", "s3://bucket/data", "--out", "s3://bucket/run", *options]) == 0
    assert "labels=s3://bucket/run/labels" in capsys.readouterr().out
    assert main(["status", "s3://bucket/run"]) == 0
    assert capsys.readouterr().out.endswith("finished\n")
    again = ["s3://bucket/data", "--out", "s3://bucket/again", "--id-column", "id", "--quiet"]
    assert main(["assign", "s3://bucket/run", *again]) == 0
    first, second = (
        pq.read_table(f"bucket/{name}", filesystem=bucket) for name in ("run/labels", "again")
    )
    assert sorted(first["id"].to_pylist()) == list(range(1500))
    assert first["label"].equals(second["label"])


@pytest.mark.usefixtures("bucket")
def test_a_server_that_refuses_the_key_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], endpoint: str
) -> None:
    from urllib.request import Request, urlopen

    # from now on the server looks at keys, and knows none
    address = f"http://{endpoint}/moto-api/reset-auth"
    plain = {"Content-Type": "application/octet-stream"}
    urlopen(Request(address, data=b"0", headers=plain, method="POST")).close()
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "wrong")
    assert main(["info", "s3://bucket/data"]) in (1, 2)
    error = capsys.readouterr().err
    assert len(error.splitlines()) == 1
    assert "ACCESS_DENIED" in error or "INVALID_ACCESS_KEY" in error or "403" in error
    assert "secret" not in error
