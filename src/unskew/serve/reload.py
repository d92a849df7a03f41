"""A new run folder in place of the old one: made ready beside, checked, and then served, or refused."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable
from pathlib import Path

from unskew.errors import RunFolderError, UnskewError
from unskew.io.files import RUN
from unskew.io.manifest import digest_of, faults
from unskew.serve import logs
from unskew.serve.counters import Counters
from unskew.serve.prepare import model_name
from unskew.serve.served_model import ServedModel
from unskew.serve.settings import ServeSettings
from unskew.serve.state import State

Fingerprint = tuple[tuple[str, int, int, int], ...]


def fingerprint(run: Path) -> Fingerprint | None:
    """Names, places, sizes and times of a folder's files; None while there is none."""
    found = []
    try:
        with os.scandir(run) as entries:
            for entry in entries:
                info = entry.stat()
                found.append((entry.name, info.st_ino, info.st_size, info.st_mtime_ns))
    except OSError:
        return None
    return tuple(sorted(found))


class Loader:
    """From a run folder to a model that can be served."""

    def __init__(self, settings: ServeSettings, state: State) -> None:
        self.settings, self.state = settings, state

    def name(self) -> str:
        """What the model of the run folder as it is now is called."""
        run = self.settings.run
        try:
            digest = digest_of(run)
        except (OSError, ValueError) as error:
            raise RunFolderError(
                "is no whole run folder (its manifest cannot be read)",
                where=str(run),
                remedy="give a folder that unskew run wrote",
            ) from error
        return model_name(digest, self.settings.what, self.settings.method)

    async def check(self) -> None:
        """An error unless the run folder is as it was written, whether or not its model is known already."""
        run = self.settings.run
        if found := await asyncio.to_thread(faults, run, RUN.files):
            raise RunFolderError("; ".join(found), where=str(run), remedy="put a whole run folder there")

    async def load(self, name: str) -> ServedModel:
        """Make it ready, if that was not done before, and read it."""
        await self.check()
        folder = self.state.models / name
        if folder.is_dir():
            try:
                return await asyncio.to_thread(self._read, folder)
            except UnskewError as error:
                logs.write("made again", level="warning", model=name, why=str(error))
                await asyncio.to_thread(_remove, folder)
        try:
            await self._prepare(folder)
        except RunFolderError:
            # The child of a service that was killed goes on, and may have put the same there first.
            if not folder.is_dir():
                raise
        return await asyncio.to_thread(self._read, folder)

    async def last(self) -> ServedModel | None:
        """The model that was served last, if it can be and is of the same kind."""
        for name in reversed(self.state.served):
            try:
                model = await asyncio.to_thread(self._read, self.state.models / name)
            except (UnskewError, OSError, ValueError):
                continue
            asked = self.settings
            if model.name == model_name(model.facts["run"], asked.what, asked.method):
                return model
        return None

    def _read(self, folder: Path) -> ServedModel:
        return ServedModel(folder, self.settings.unseen, self.settings.threads)

    async def _prepare(self, folder: Path) -> None:
        settings = self.settings
        method = [] if settings.method is None else [settings.method]
        own_code = ["--", *map(str, settings.own_code)] if settings.own_code else []
        arguments = [str(settings.run), str(folder), settings.what, *method, *own_code]
        # -P: what lies in the working folder is no library.
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-P",
            "-m",
            "unskew.serve.prepare",
            *arguments,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.PIPE,
        )
        try:
            _, said = await process.communicate()
        except asyncio.CancelledError:
            if process.returncode is None:
                process.kill()
                await process.wait()
            raise
        if process.returncode:
            lines = said.decode(errors="replace").strip().splitlines() or [f"exit code {process.returncode}"]
            problem, _, remedy = lines[-1].partition(" To fix: ")
            raise RunFolderError(problem, remedy=remedy or "give a run folder that unskew run wrote")


def _remove(folder: Path) -> None:
    import shutil

    shutil.rmtree(folder, ignore_errors=True)


class Reloader:
    """Looks at the run folder now and then.

    Parameters
    ----------
    serve
        What serves a new model from now on.
    served
        The name of the model that is served now.
    seen
        What the folder was like when that was loaded.
    """

    def __init__(
        self,
        loader: Loader,
        counters: Counters,
        serve: Callable[[ServedModel], None],
        served: str,
        seen: Fingerprint | None,
    ) -> None:
        self._loader, self._counters, self._serve = loader, counters, serve
        self._served, self._seen = served, seen

    async def watch(self, every: float) -> None:
        """Look until cancelled."""
        while True:
            await asyncio.sleep(every)
            await self.look()

    async def look(self) -> None:
        """Serve what is new, if it is whole. A folder that is refused is looked at again when it changes."""
        run = self._loader.settings.run
        now = fingerprint(run)
        if now is None or now == self._seen:
            # Nothing is there while one folder goes and another comes.
            return
        self._seen = now
        try:
            name = self._loader.name()
            if name == self._served:
                await self._loader.check()
                return
            model = await self._loader.load(name)
        except asyncio.CancelledError:
            raise
        except Exception as error:
            # Whatever is wrong with a new folder must not end the service of the old one.
            if fingerprint(run) != now:
                # It came while it was looked at: the next look will tell.
                self._seen = None
                return
            self._counters.reloads["refused"] += 1
            logs.write("run refused", level="error", run=str(run), why=str(error), serving=self._served)
            return
        self._serve(model)
        self._served = model.name
        self._counters.reloads["loaded"] += 1
        logs.write("run loaded", run=str(run), model=model.name, method=model.facts["method"])
