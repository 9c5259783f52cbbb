"""Upload models to the Hugging Face Hub and load them from it."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import prcut
from prcut.errors import PRCutError
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
    """Upload the three files of a saved model; return the URL of the commit.

    Repository and branch are created if they do not exist.
    """
    hub = _import_hub()
    load_model(path)  # raises an error for a broken model
    folder = Folder(path)
    with TemporaryDirectory() as copy:
        # the Hub's client reads local files only, and the folder may be on another filesystem
        for name in filter(folder.exists, MODEL_FILES):
            Path(copy, name).write_bytes(folder.read_bytes(name))
        api = hub.HfApi(token=token, library_name="prcut", library_version=prcut.__version__)
        try:
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
        except Exception as error:  # of the client's HTTP library too, which changes by version
            raise PRCutError(f"uploading {path} to {repo_id} failed: {error}") from error
    return str(commit.commit_url)


def load_from_hub(repo_id: str, **options: Any) -> LoadedModel:
    """Load a model from the Hugging Face Hub; an existing folder of that name takes precedence.

    Options are those of ``huggingface_hub.snapshot_download``, such as ``revision``, ``token``,
    ``cache_dir`` and ``local_files_only``.
    """
    if Path(repo_id).is_dir():
        return load_model(repo_id)
    hub = _import_hub()
    about = {"library_name": "prcut", "library_version": prcut.__version__}
    try:
        path = hub.snapshot_download(repo_id, allow_patterns=MODEL_FILES, **about, **options)
    except Exception as error:
        raise PRCutError(f"loading {repo_id} failed: {error}") from error
    return load_model(path)


def _import_hub() -> Any:
    try:
        import huggingface_hub
    except ImportError as error:
        raise PRCutError(
            "the Hugging Face Hub needs huggingface_hub; pip install 'prcut[hub]'."
        ) from error
    return huggingface_hub
