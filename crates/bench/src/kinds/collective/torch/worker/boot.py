# Start of a worker: `python3 -u -c BOOT BYTES`. The sources of the worker come over the socket that
# is its standard input, so that a list of processes shows these lines and not the whole program.
import json
import linecache
import socket
import sys
import types

# Files of the directory that the run was started in must not come before Python's own.
sys.path[:] = [path for path in sys.path if path]


def receive(rank, length):
    text = b""
    while len(text) < length:
        part = rank.recv(length - len(text))
        if not part:
            sys.exit("the rank that started this worker has gone")
        text += part
    return json.loads(text.decode())


def load(name):
    """Runs one of the sources as a module."""
    path = "<tonnage>/%s.py" % name
    source = sources[name]
    # So that tracebacks show lines.
    linecache.cache[path] = (len(source), None, source.splitlines(True), path)
    module = types.ModuleType("tonnage_" + name)
    sys.modules[module.__name__] = module
    exec(compile(source, path, "exec"), module.__dict__)
    return module


rank = socket.socket(fileno=0)
sources = dict(receive(rank, int(sys.argv[1])))
load("orders").main(rank, load)
