"""A new run folder in place of the old one: exported beside, checked, and then served, or refused."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import sys
from hashlib import sha256
from pathlib import Path

from unskew.base.errors import RunFolderError, UnskewError
from unskew.base.files import RUN
from unskew.base.manifest import digest_of, faults
from unskew.serve import logs
from unskew.serve.served_model import ServedModel
from unskew.serve.settings import ServeSettings
from unskew.serve.store import Store

POLITE = 5
"""Niceness of the process that exports a model: the one that serves goes first."""


def model_name(run_digest: str, what: str, method: str | None) -> str:
    """Return the name of a model: a digest of the run folder and of what is served from it."""
    return sha256(json.dumps([run_digest, what, method]).encode()).hexdigest()[:16]


class Runs:
    """The run folder of a service, as models that can be served."""

    def __init__(self, settings: ServeSettings, own_code: tuple[Path, ...], store: Store) -> None:
        self._settings, self._own_code, self._store = settings, own_code, store
        self._kind = json.dumps([settings.what, settings.method])
        self._seen: object = None
        self._served = ""

    async def first(self) -> ServedModel:
        """Return the model of the run folder; where that is damaged, the one that was served last."""
        self._seen = self._fingerprint()
        try:
            return await self._load()
        except UnskewError as error:
            for name in reversed(self._store.served):
                if self._store.is_whole(name, self._kind):
                    model = self._read(name)
                    self._refuse(error)
                    return model
            raise

    async def look(self) -> ServedModel | None:
        """Return the model of a run folder that is new and whole; a refused one waits for its next change."""
        now, before = self._fingerprint(), self._served
        if now is None or now == self._seen:
            # Nothing is there while one folder goes and another comes.
            return None
        self._seen = now
        try:
            model = await self._load()
        except Exception as error:
            if self._fingerprint() != now:
                # It changed meanwhile: the next look will tell.
                self._seen = None
                return None
            self._refuse(error)
            raise
        return None if model.name == before else model

    def _refuse(self, error: Exception) -> None:
        facts = {"run": str(self._settings.run), "why": str(error), "serving": self._served}
        logs.write("run refused", logging.ERROR, **facts)

    def _fingerprint(self) -> object:
        """Return names, places, sizes and times of the folder's files; None while there is none."""
        try:
            with os.scandir(self._settings.run) as entries:
                stats = [(entry.name, entry.stat()) for entry in entries]
        except OSError:
            return None
        return sorted((name, info.st_ino, info.st_size, info.st_mtime_ns) for name, info in stats)

    async def _load(self) -> ServedModel:
        run, store = self._settings.run, self._store
        try:
            digest = digest_of(run)
        except (OSError, ValueError) as error:
            raise RunFolderError(
                f"is no whole run folder (its manifest cannot be read: {error})",
                where=str(run),
                remedy="give a folder that unskew run wrote",
            ) from error
        if problems := await asyncio.to_thread(faults, run, RUN.files):
            raise RunFolderError("; ".join(problems), where=str(run), remedy="put a whole run folder there")
        name = model_name(digest, self._settings.what, self._settings.method)
        if not await asyncio.to_thread(store.is_whole, name):
            await self._export(store.file(name))
            if digest_of(run) != digest:
                raise RunFolderError("was replaced while it was read", where=str(run), remedy="try again")
        model = await asyncio.to_thread(self._read, name)
        await asyncio.to_thread(store.serve, name, self._kind)
        return model

    def _read(self, name: str) -> ServedModel:
        model = ServedModel(self._store.file(name), self._settings.unseen, self._settings.max_rows)
        self._served = name
        return model

    async def _export(self, path: Path) -> None:
        """Run ``unskew export`` in a process of its own, which loads torch and ends."""
        asked = self._settings
        own_code = [word for file in self._own_code for word in ("--with", str(file))]
        method = [] if asked.method is None else ["--method", asked.method]
        options = ["-o", str(path), "--overwrite", "--what", asked.what, *method]
        # -P: what lies in the working folder is no library.
        command = [sys.executable, "-P", "-m", "unskew", *own_code, "export", str(asked.run), *options]
        none, pipe = asyncio.subprocess.DEVNULL, asyncio.subprocess.PIPE
        process = await asyncio.create_subprocess_exec(*command, stdin=none, stdout=none, stderr=pipe)
        if hasattr(os, "setpriority"):
            os.setpriority(os.PRIO_PROCESS, process.pid, POLITE)
        try:
            _, said = await process.communicate()
        finally:
            if process.returncode is None:
                process.kill()
        if process.returncode:
            lines = said.decode(errors="replace").strip().splitlines() or [f"exit code {process.returncode}"]
            problem, _, remedy = lines[-1].removeprefix("unskew: ").partition(" To fix: ")
            raise RunFolderError(problem, remedy=remedy or "give a run folder that unskew run wrote")
