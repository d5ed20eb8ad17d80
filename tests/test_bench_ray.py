"""The same grid on a Ray cluster of several nodes on this machine: the same results, whoever is killed meanwhile."""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from test_bench import TINY, environment, result_files

import procurl

pytest.importorskip("ray", reason="needs procurl[ray]: make test-ray installs it")
pytestmark = pytest.mark.ray
SUITE = TINY.replace("steps = 6_000", "steps = 300_000")

# The command line, which also says when a checkpoint has come from the cluster, and wants them often.
DRIVER = """
import sys
from procurl.bench.grid import ray_executor

ray_executor.RayExecutor.sent_every = 0.0
ray_executor.RayExecutor.save_share = 1.0  # a fast machine would finish a cell before a first checkpoint is worth it
real = ray_executor._store_checkpoint

def store(place, files):
    real(place, files)
    print("kept a checkpoint of", place.name, file=sys.stderr, flush=True)

ray_executor._store_checkpoint = store
from procurl.cli import main
sys.exit(main(sys.argv[1:]))
"""


@pytest.fixture
def cluster_environment(tmp_path):
    """Token authentication, as the pages of Ray tell, and the loopback interface alone."""
    (tmp_path / "token").write_text("0123456789abcdef" * 4)
    return environment() | {
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN_PATH": str(tmp_path / "token"),
        "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
        "RAY_USAGE_STATS_ENABLED": "0",
    }


NODES = """
import json, sys
from ray.cluster_utils import Cluster

head, *others = json.loads(sys.argv[1])
cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": head, "include_dashboard": False})
nodes = [cluster.head_node, *(cluster.add_node(num_cpus=n) for n in others)]
cluster.wait_for_nodes()
raylets = [node.all_processes["raylet"][0].process.pid for node in nodes]
print(json.dumps({"address": cluster.address, "raylets": raylets}), flush=True)
sys.stdin.read()
cluster.shutdown()
"""


class Cluster:
    """Nodes by their number, each with its raylet; node 0 is the head, and the one that the driver uses."""

    def __init__(self, address, raylets):
        self.address, self.raylets = address, raylets

    def lose(self, number):
        """As if the machine lost its power."""
        for pid in [*descendants(self.raylets[number]), self.raylets[number]]:
            kill(pid)


@contextmanager
def cluster(env, cpus):
    """So many nodes with so many CPUs each, for a while."""
    with subprocess.Popen(
        [sys.executable, "-c", NODES, json.dumps(cpus)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=env,
    ) as process:
        try:
            said = next((line for line in process.stdout if line.startswith("{")), None)
            assert said, "the nodes did not start: Ray gives each 30 seconds, so perhaps this machine is too busy"
            yield Cluster(**json.loads(said))
        finally:
            process.stdin.close()
            process.wait(timeout=120)


def descendants(pid):
    try:
        own = [int(p) for task in Path(f"/proc/{pid}/task").iterdir() for p in (task / "children").read_text().split()]
    except OSError:
        return []
    return own + [p for child in own for p in descendants(child)]


def kill(pid):
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def trainers(pid):
    """The processes below that train a cell."""
    found = []
    for child in descendants(pid):
        with suppress(OSError):
            if b"procurl.bench.grid.worker" in Path(f"/proc/{child}/cmdline").read_bytes():
                found.append(child)
    return found


def parent(pid):
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def driver(*args, env, **options):
    return subprocess.Popen(
        [sys.executable, "-c", DRIVER, "bench", *map(str, args), "--executor", "ray"],
        stderr=subprocess.PIPE, text=True, env=env, **options,
    )  # fmt: skip


def finished(process, timeout=1800):
    said = process.stderr.read()
    return process.wait(timeout=timeout), said


@pytest.fixture(scope="module")
def at_home(tmp_path_factory):
    """What the local executor makes of both suites."""
    made = {}
    for name, text in (("tiny", TINY), ("longer", SUITE)):
        home = tmp_path_factory.mktemp(name)
        (home / f"{name}.toml").write_text(text)
        done = subprocess.run(
            [sys.executable, "-m", "procurl.cli", "bench", str(home / f"{name}.toml"), "--out", str(home / "out"),
             "--device", "cpu"],
            capture_output=True, text=True, timeout=1800, env=environment(),
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        made[name] = (home / f"{name}.toml", home / "out")
    return made


def test_without_an_address_it_is_a_cluster_of_ones_own_on_the_loopback_interface(at_home, tmp_path):
    suite, expected = at_home["tiny"]
    env = environment() | {"RAY_ADDRESS": "127.0.0.1:1"}  # some other cluster is not asked
    with driver(suite, "--out", tmp_path / "out", "--workers", 2, env=env) as process:
        begun = []
        for line in process.stderr:
            begun.append(line)
            if line.startswith("started: "):
                break
        addresses = listening([process.pid, *descendants(process.pid)])
        status, said = finished(process)
    assert status == 0, "".join(begun) + said
    assert len(addresses) >= 4 and {a.rpartition(":")[0] for a in addresses} == {"127.0.0.1"}, addresses
    assert result_files(tmp_path / "out") == result_files(expected)


def test_a_killed_worker_and_a_lost_node_lose_nothing(at_home, cluster_environment, tmp_path):
    suite, expected = at_home["longer"]
    with (
        cluster(cluster_environment, cpus=[0, 1, 1]) as nodes,
        driver(suite, "--out", tmp_path / "out", "--address", nodes.address, env=cluster_environment) as process,
    ):
        said = []

        def read_until(text):
            for line in process.stderr:
                said.append(line)
                if text in line:
                    return line
            raise AssertionError(f"no {text!r} in {''.join(said)}")

        first = read_until("kept a checkpoint").split()[-1]
        victim = next(t for raylet in nodes.raylets for t in trainers(raylet) if first.encode() in cmdline(t))
        kill(parent(victim))  # Ray's worker, which ran that cell's process
        assert first in read_until("lost, will be tried again")
        second = read_until("kept a checkpoint").split()[-1]
        lost = next(n for n in (1, 2) if any(second.encode() in cmdline(t) for t in trainers(nodes.raylets[n])))
        nodes.lose(lost)
        assert second in read_until("lost, will be tried again")
        status, rest = finished(process)
    assert status == 0, "".join(said) + rest
    assert result_files(tmp_path / "out") == result_files(expected)
    resumed = {
        cell.name: procurl.load_result(cell).timing["resumed_at_steps"] for cell in (tmp_path / "out/cells").iterdir()
    }
    assert resumed[first] and resumed[second], "neither began anew"


def cmdline(pid):
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def test_a_cut_benchmark_goes_on_without_the_cluster(at_home, cluster_environment, tmp_path):
    """The driver is killed; what the cluster had sent is a checkpoint like any other."""
    suite, expected = at_home["longer"]
    with (
        cluster(cluster_environment, cpus=[1]) as nodes,
        driver(suite, "--out", tmp_path / "out", "--address", nodes.address, env=cluster_environment) as process,
    ):
        for line in process.stderr:
            if line.startswith("kept a checkpoint"):
                break
        process.kill()
    done = subprocess.run(
        [sys.executable, "-m", "procurl.cli", "bench", str(suite), "--out", str(tmp_path / "out"), "--device", "cpu"],
        capture_output=True, text=True, timeout=1800, env=environment(),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert result_files(tmp_path / "out") == result_files(expected)
    cells = list((tmp_path / "out" / "cells").iterdir())
    assert any(procurl.load_result(cell).timing["resumed_at_steps"] for cell in cells)


def refused(tmp_path, *args, env, script=DRIVER):
    (tmp_path / "tiny.toml").write_text(TINY)
    done = subprocess.run(
        [sys.executable, "-c", script, "bench", str(tmp_path / "tiny.toml"), "--out", str(tmp_path / "out"),
         "--executor", "ray", *args],
        capture_output=True, text=True, timeout=300, env=env,
    )  # fmt: skip
    assert done.returncode == 1 and "Traceback" not in done.stderr, done.stderr
    return done.stderr


def test_an_address_that_does_not_answer(cluster_environment, tmp_path):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    said = refused(tmp_path, "--address", address, env=cluster_environment)
    assert f"no Ray cluster answers at {address}" in said and "ray start --head" in said
    for wrong in ("ray://localhost:10001", "localhost", "localhost:port"):
        assert "expected HOST:PORT" in refused(tmp_path, "--address", wrong, env=cluster_environment)


def test_tokens_versions_and_devices_are_checked(cluster_environment, tmp_path):
    with cluster(cluster_environment, cpus=[1]) as nodes:
        where = ("--address", nodes.address)
        without = {k: v for k, v in cluster_environment.items() if k != "RAY_AUTH_TOKEN_PATH"}
        said = refused(tmp_path, *where, env={**without, "HOME": str(tmp_path)})
        assert "no token for the Ray cluster" in said and "RAY_AUTH_TOKEN_PATH" in said
        (tmp_path / "wrong").write_text("f" * 64)
        said = refused(tmp_path, *where, env={**cluster_environment, "RAY_AUTH_TOKEN_PATH": str(tmp_path / "wrong")})
        assert "is the token its own" in said
        older = "import ray\nray.__version__ = '2.0.0'\n" + DRIVER
        said = refused(tmp_path, *where, env=cluster_environment, script=older)
        assert "has other versions than this machine" in said and "2.0.0" in said
        said = refused(tmp_path, *where, "--device", "gpu", env=cluster_environment)
        assert "the Ray cluster has no GPU to give" in said
    assert not (tmp_path / "out" / "grid.json").exists()


def test_a_node_with_another_procurl_is_refused(cluster_environment, tmp_path):
    other = Path(shutil.copytree(Path(procurl.__file__).parent, tmp_path / "other" / "procurl"))
    source = (other / "__init__.py").read_text()
    (other / "__init__.py").write_text(source.replace(f'__version__ = "{procurl.__version__}"', '__version__ = "99"'))
    with cluster({**cluster_environment, "PYTHONPATH": str(tmp_path / "other")}, cpus=[1]) as nodes:
        said = refused(tmp_path, "--address", nodes.address, env=cluster_environment)
    assert f"procurl 99 there, {procurl.__version__} here" in said and "Install the same" in said


def listening(pids):
    """The addresses on which these processes accept connections."""
    sockets = set()
    for pid in pids:
        try:
            links = [os.readlink(p) for p in Path(f"/proc/{pid}/fd").iterdir()]
        except OSError:
            continue
        sockets |= {link[8:-1] for link in links if link.startswith("socket:[")}
    found = set()
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A" and fields[9] in sockets:
                host, port = fields[1].split(":")
                raw = bytes.fromhex(host)
                words = b"".join(raw[i : i + 4][::-1] for i in range(0, len(raw), 4))
                mapped = words[-4:] if len(words) == 4 or words[:12] == b"\0" * 10 + b"\xff\xff" else None
                text = socket.inet_ntoa(mapped) if mapped else socket.inet_ntop(socket.AF_INET6, words)
                found.add(f"{text}:{int(port, 16)}")
    return found
