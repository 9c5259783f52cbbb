"""Upload models to the Hugging Face Hub and load them from it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import prcut
from prcut.errors import InvalidInputError, PRCutError
from prcut.runtime.folder import Folder
from prcut.training.assigner.saved import MODEL_FILES, LoadedModel, load_model


def push_to_hub(
    path: str | Path,
    repo_id: str,
    *,
    private: bool = False,
    token: str | None = None,
    revision: str | None = None,
    commit_message: str = "Upload a prcut model",
) -> str:
    """Upload a saved folder to the Hugging Face Hub; return the URL of the commit.

    Only the three files of a model are uploaded, and only when :func:`load_model` accepts them.
    Repository and branch are created where they are absent.
    """
    hub = _import_hub()
    load_model(path)
    folder = Folder(path)
    with _hub_errors(f"uploading {folder.path} to {repo_id}"), TemporaryDirectory() as copy:
        # the Hub's client reads local files only, and the folder may be on another filesystem
        for name in filter(folder.exists, MODEL_FILES):
            Path(copy, name).write_bytes(folder.read_bytes(name))
        api = hub.HfApi(token=token, library_name="prcut", library_version=prcut.__version__)
        # the response includes the user's name where repo_id left it out
        repo_id = api.create_repo(repo_id, private=private, exist_ok=True).repo_id
        if revision is not None:
            api.create_branch(repo_id, branch=revision, exist_ok=True)
        commit = api.upload_folder(
            repo_id=repo_id,
            folder_path=copy,
            revision=revision,
            commit_message=commit_message,
            allow_patterns=MODEL_FILES,
        )
    return str(commit.commit_url)


def load_from_hub(
    repo_id: str,
    *,
    revision: str | None = None,
    token: str | None = None,
    cache_dir: str | Path | None = None,
    local_files_only: bool = False,
) -> LoadedModel:
    """Load a model from the Hugging Face Hub; an existing folder of that name takes precedence."""
    if Path(repo_id).is_dir():
        return load_model(repo_id)
    hub = _import_hub()
    with _hub_errors(f"loading {repo_id}"):
        path = hub.snapshot_download(
            repo_id,
            revision=revision,
            token=token,
            cache_dir=cache_dir,
            local_files_only=local_files_only,
            allow_patterns=MODEL_FILES,
            library_name="prcut",
            library_version=prcut.__version__,
        )
    return load_model(path)


def _import_hub() -> Any:
    try:
        import huggingface_hub
    except ImportError as error:
        raise PRCutError(
            "the Hugging Face Hub needs huggingface_hub; pip install 'prcut[hub]'."
        ) from error
    return huggingface_hub


@contextmanager
def _hub_errors(action: str) -> Iterator[None]:
    """Turn whatever the Hub's client raises into one error that names the action."""
    try:
        yield
    except PRCutError:
        raise
    # errors of the client's HTTP library come through, and major versions use different ones
    except Exception as error:
        summary = str(error).strip() or type(error).__name__
        # a malformed name is a ValueError; older clients raise one for a failed connection as well
        is_input = isinstance(error, ValueError) and not isinstance(error, OSError)
        kind = InvalidInputError if is_input else PRCutError
        raise kind(f"{action} failed: {summary}") from error
