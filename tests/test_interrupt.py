"""Signals while the compiler is at work, which is outside of Python: they end a run that has nothing to save."""

import os
import re
import signal
import subprocess
import sys
import threading

import pytest
from test_cli import TINY, run_cli

import procurl
from procurl.runs.interrupt import Interruptible, start_compiler, wait_for

SIGNALS = [(signal.SIGTERM, SystemExit), (signal.SIGINT, KeyboardInterrupt)]


@pytest.fixture
def finish():
    """What a compiler waits for, as long as the test likes."""
    event = threading.Event()
    yield event
    event.set()


@pytest.mark.parametrize(("number", "error"), SIGNALS)
def test_nobody_waits_for_the_compiler_after_a_signal(number, error, finish):
    compiler = start_compiler(finish.wait)
    with Interruptible() as interrupt:
        threading.Thread(target=os.kill, args=(os.getpid(), number)).start()
        with pytest.raises(error):
            wait_for(compiler)
    assert interrupt.requested and compiler.is_alive()
    assert Interruptible.current is None


def test_with_something_to_save_even_the_compiler_is_awaited(finish):
    compiler = start_compiler(finish.wait)
    with Interruptible() as interrupt:
        interrupt.unsaved = True
        signal.raise_signal(signal.SIGTERM)
        threading.Thread(target=finish.set).start()
        wait_for(compiler)
    assert interrupt.requested and not compiler.is_alive()


def test_dispensable_work_is_given_up(finish):
    with Interruptible() as interrupt:
        interrupt.unsaved = True
        signal.raise_signal(signal.SIGTERM)
        with interrupt.dispensable():
            wait_for(start_compiler(finish.wait))
            pytest.fail("the compiler was awaited")
        assert interrupt.requested and interrupt.unsaved


@pytest.mark.kill
def test_a_command_ends_while_it_compiles_and_its_run_goes_on(tmp_path):
    """JAX tells when it hands a program to XLA, and when it has it back: of the killed ones it never comes back."""
    folder = tmp_path / "run"
    begun = run_cli("train", "point-mass-1t", "--teacher", "iid", "--steps", "512", "--out", folder, *TINY)
    assert begun.returncode == 0, begun.stderr
    command = [sys.executable, "-m", "procurl.cli", "resume", str(folder), "--steps", "512"]
    environment = {**os.environ, "JAX_COMPILATION_CACHE_DIR": "", "JAX_LOG_COMPILES": "1"}
    program = r"jit\((iterate|of_one_device)\)"
    for number, _ in SIGNALS:
        with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment) as process:
            for line in process.stderr:
                if re.search(f"Finished jaxpr to MLIR module conversion {program}", line):
                    break
            process.send_signal(number)
            rest = process.stderr.read()
            assert process.wait(timeout=300) == 128 + number, rest
        assert not re.search(f"Finished XLA compilation of {program}", rest), rest
        assert "procurl: interrupted; what was done is in" in rest and "Traceback" not in rest
    done = run_cli("resume", folder, "--steps", "512")
    assert done.returncode == 0 and "going on after 512 steps" in done.stderr, done.stderr
    assert procurl.load_result(folder).steps[-1] == 1024
