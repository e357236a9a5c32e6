"""Extracts the code blocks of the runbooks and runs them as an operator would: in a shell on a terminal."""

import os
import pathlib
import pty
import re
import select
import shlex
import signal
import tempfile
import time

# ```sh NAME starts a block that a scenario runs. <!-- not run: REASON --> in the line before ```sh exempts a block.
REASON = r"(?:^[ ]*<!-- not run: (?P<reason>[^\n]+) -->\n)?"
BLOCK = re.compile(REASON + r"^(?P<indent>[ ]*)```sh(?: (?P<name>[a-z0-9-]+))?\n(?P<text>.*?)^(?P=indent)```$", re.M | re.S)
STEP_TIMEOUT_S = 90


class Runbooks:
    """The code blocks of all pages, by name."""

    def __init__(self, directory):
        self.blocks, self.skipped, self.unnamed, self.finished = {}, [], [], []
        for path in sorted(directory.glob("*.md")):
            text = path.read_text()
            for match in BLOCK.finditer(text):
                place = f"{path.name}:{text[:match.start('indent')].count(chr(10)) + 1}"
                if match["reason"]:
                    self.skipped.append((place, match["reason"]))
                elif not match["name"] or match["name"] in self.blocks:
                    self.unnamed.append(place)
                else:
                    lines = [line.removeprefix(match["indent"]) for line in match["text"].splitlines()]
                    self.blocks[match["name"]] = (path.name, "\n".join(lines) + "\n")

    def pages(self):
        return sorted({page for page, _ in self.blocks.values()})

    def problems(self, pages):
        """What keeps the pages from being checked completely."""
        for place in self.unnamed:
            yield f"{place}: a block needs a unique name, or a comment with the reason why it is not run"
        for name, (page, _) in self.blocks.items():
            if page in pages and name not in self.finished:
                yield f"{page}: no scenario ran the block {name}"
        for page in pages:
            ran = [name for name in self.finished if self.blocks[name][0] == page]
            order = [name for name in self.blocks if name in ran]
            if list(dict.fromkeys(ran)) != order:
                yield f"{page}: the order of the page is {order}, but the blocks ran as {list(dict.fromkeys(ran))}"


class Shell:
    """Runs blocks. Variables that a block sets are kept for the next one, as in the shell of a reader."""

    def __init__(self, runbooks, directory):
        self.runbooks, self.directory = runbooks, directory
        self.state = pathlib.Path(tempfile.mkdtemp()) / "variables"
        # A command that runs the shell on another machine.
        self.prefix = []

    def run(self, name, answers=(), fails=False, **variables):
        """Runs a block. `answers` are pairs of a prompt and what to type. `variables` are those that the page names.

        Commands after a failed one run only with `fails`, which is for commands whose exit code reports a problem."""
        self.runbooks.finished.append(name)
        output, code = self.execute(self.runbooks.blocks[name][1], answers, variables, "+e" if fails else "-e")
        if code and not fails:
            raise AssertionError(f"the block {name} ended with code {code}:\n{output}")
        return output

    def execute(self, text, answers, variables, option):
        script = self.state.with_name("block")
        assignments = "".join(f"{key}={shlex.quote(value)}\n" for key, value in variables.items())
        kept = f"[ ! -e {self.state} ] || source {self.state} 2>/dev/null\ntrap 'declare -p >{self.state}' EXIT\n"
        script.write_text(f"{kept}{assignments}set {option}uo pipefail\n{text}")
        process, terminal = pty.fork()
        if process == 0:
            os.chdir(self.directory)
            command = [*self.prefix, "bash", str(script)]
            os.execvpe(command[0], command, {**os.environ, "USER": "root", "TERM": "dumb", "PAGER": "cat", "SYSTEMD_PAGER": ""})
        output, answers, seen, deadline = "", list(answers), 0, time.monotonic() + STEP_TIMEOUT_S
        while True:
            if select.select([terminal], [], [], 0.1)[0]:
                try:
                    part = os.read(terminal, 65536).decode(errors="replace")
                except OSError:  # The other end is closed.
                    part = ""
                if not part:
                    break
                output += part
            if answers and answers[0][0] in output[seen:]:
                seen = output.index(answers[0][0], seen) + len(answers[0][0])
                # Programs discard what was typed before they turned the echo off.
                time.sleep(0.1)
                os.write(terminal, answers.pop(0)[1].encode())
            if time.monotonic() > deadline:
                os.kill(process, signal.SIGKILL)
                output += f"\n(ended after {STEP_TIMEOUT_S} s)"
                break
        os.close(terminal)
        code = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
        if answers:
            raise AssertionError(f"no prompt {answers[0][0]!r} in:\n{output}")
        return output.replace("\r\n", "\n"), code
