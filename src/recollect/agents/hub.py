"""Model folders on the Hugging Face Hub.

    address = upload(folder, "someone/t-maze-hcam")
    folder = download("someone/t-maze-hcam")

Only files of :data:`FILES` go up or come down: JSON, safetensors, Markdown and a picture. So no code and no pickle of a
repository is ever on this machine. ``huggingface_hub`` keeps tokens, cache and transfers.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from os import PathLike
from pathlib import Path
from types import ModuleType
from typing import Any

from recollect.config import require

FILES = ("config.json", "spec.json", "weights.safetensors", "results.json", "README.md", "film.png")
"""Names of the files of a repository that are read and written; others are left alone."""
REQUIRED = FILES[:3]


def upload(
    folder: str | PathLike[str],
    repository: str,
    *,
    private: bool | None = None,
    token: str | None = None,
    endpoint: str | None = None,
) -> str:
    """Write a model folder to a repository in one commit; the repository is made if it does not exist.

    Args:
        folder: of a model.
        repository: ``OWNER/NAME``.
        private: visible to its owner alone; None as the owner's account says. An existing repository keeps what it is.
        token: that may write there; None takes that of ``hf auth login``.
        endpoint: address of the hub; None takes huggingface.co, or ``HF_ENDPOINT``.

    Returns:
        The address of the repository.

    Raises:
        ValueError: ``huggingface_hub`` is missing, no model folder, no such account, no permission, or no connection.
    """
    hub, source = _load_client(), Path(folder)
    missing = [name for name in REQUIRED if not (source / name).is_file()]
    require(not missing, "folder", str(source), f"give a model folder: {', '.join(missing)} is missing in it")
    paths = [source / name for name in FILES if (source / name).is_file()]
    with _one_line(repository):
        api = hub.HfApi(endpoint=endpoint, token=token, library_name="recollect")
        address = api.create_repo(repository, private=private, exist_ok=True)
        additions = [hub.CommitOperationAdd(path_in_repo=path.name, path_or_fileobj=str(path)) for path in paths]
        api.create_commit(repository, additions, commit_message=f"Upload {source.name}")
    return str(address)


def download(
    repository: str,
    *,
    revision: str | None = None,
    token: str | None = None,
    endpoint: str | None = None,
    cache: str | PathLike[str] | None = None,
) -> Path:
    """Fetch the model folder of a repository into the cache of ``huggingface_hub``, and return its path.

    Without a connection, or with ``HF_HUB_OFFLINE=1``, the copy in the cache is used.

    Args:
        repository: ``OWNER/NAME``.
        revision: branch, tag or commit; None takes the main branch. Only a commit is sure to stay the same.
        token: that may read it; None takes that of ``hf auth login``, if there is one.
        endpoint: as in :func:`upload`.
        cache: folder of the copies; None takes that of ``huggingface_hub``.

    Raises:
        ValueError: ``huggingface_hub`` is missing, there is no such repository or revision, it holds no model folder,
            or there is neither connection nor copy.
    """
    hub = _load_client()
    options: dict[str, Any] = {"revision": revision, "token": token, "endpoint": endpoint, "cache_dir": cache}
    with _one_line(repository):
        folder = Path(
            hub.snapshot_download(repository, allow_patterns=list(FILES), library_name="recollect", **options)
        )
    missing = [name for name in REQUIRED if not (folder / name).is_file()]
    if missing:
        raise ValueError(f"hub:{repository} holds no model of this library: {', '.join(missing)} is missing in it")
    return folder


def _load_client() -> ModuleType:
    try:
        import huggingface_hub
    except ImportError as error:
        raise ValueError(
            "the hub needs huggingface_hub: run pip install 'recollect-torch[hub]', or give a folder instead"
        ) from error
    return huggingface_hub


@contextmanager
def _one_line(repository: str) -> Iterator[None]:
    """Turn what the client raises into one line that names the repository."""
    try:
        yield
    except Exception as error:  # the client's classes of errors differ between its versions
        reason = next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
        raise ValueError(f"hub:{repository}: {_REMEDIES.get(type(error).__name__, reason)}") from error


_REMEDIES = {
    "RepositoryNotFoundError": "there is no such repository, or this account may not see it: check the name, or log in "
    "with hf auth login",
    "GatedRepoError": "its owner has to grant access first: ask for it on its page, and log in with hf auth login",
    "RevisionNotFoundError": "it has no such revision: give a branch, a tag or a commit of it",
    "LocalEntryNotFoundError": "the hub cannot be reached, and no copy is in the cache: try again with a connection",
    "IncompleteSnapshotError": "the hub cannot be reached, and the copy in the cache is incomplete: try again with a "
    "connection",
}
