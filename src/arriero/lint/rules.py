"""The calls that workflow code must not make, each with the fact that makes it a fault and with what to write instead."""

import ast
import sys
import types
from collections.abc import Mapping
from typing import Any, NamedTuple

import msgspec
from msgspec.structs import replace

STEP = "move the call into a step"


class HazardRule(msgspec.Struct, frozen=True):
    """The fact that makes a call a fault in workflow code, and its replacement.

    Args:
        fact: follows the name of the call in a sentence.
        harmless_with: with so much as this number of arguments the call is none, like ``random.Random(seed)``; None: it always is.
        deciding: position and name of the argument without which the call is none, or with a 0 or None there, like ``asyncio.sleep(0)``.
    """

    fact: str
    instead: str
    harmless_with: int | None = None
    deciding: tuple[int, str] | None = None

    def forbids(self, call: ast.Call) -> bool:
        """Returns True if a call with these arguments is a fault."""
        if self.deciding is not None:
            place, name = self.deciding
            given = [*call.args[place : place + 1], *(one.value for one in call.keywords if one.arg == name)]
            return not all(isinstance(one, ast.Constant) and not one.value for one in given)
        if self.harmless_with is None:
            return True
        is_open = any(isinstance(one, ast.Starred) for one in call.args) or any(
            one.arg is None for one in call.keywords
        )
        if is_open or len(call.args) + len(call.keywords) >= self.harmless_with:
            return any(isinstance(one, ast.Constant) and one.value is None for one in call.args[:1])
        return True

    @property
    def depends_on_arguments(self) -> bool:
        """Returns True if the name alone is harmless."""
        return self.harmless_with is not None or self.deciding is not None


_CLOCK = HazardRule("reads a clock, which has moved when arriero runs the code again", "use arriero.now()")
_CHANCE = HazardRule("draws another value when arriero runs the code again", "use arriero.random()")
_NAME = HazardRule("makes another value when arriero runs the code again", "use arriero.uuid()")
_PAUSE = HazardRule("blocks all tasks of the process", "use `await arriero.sleep(...)`")
_TIMER = HazardRule(
    "needs a timer, which the event loop of workflow code refuses",
    "use `await arriero.sleep(...)`, or complete_within= on the step",
)
_ENVIRONMENT = HazardRule(
    "depends on the process, and the next run may be in another one",
    "use an argument of the workflow, or a step's result",
)
_FILE = HazardRule("depends on the machine's files, and the next run may find others", STEP)
_NETWORK = HazardRule("is repeated, unrecorded, each time arriero runs the code again", STEP)
_PROCESS = HazardRule("starts a process each time arriero runs the code again", STEP)
_THREAD = HazardRule(
    "starts a thread, whose order is not recorded",
    "move the call into a step: a plain (not async) step runs in a thread",
)
ORDER = HazardRule(
    "is iterated in another order in each process, and the steps are called in that order", "use sorted(...)"
)

_VERBS = "get post put patch delete head options request"
_CLIENTS = ("httpx", "httpx2")
_DISTRIBUTIONS = (
    "random randint choice choices uniform sample shuffle randrange gauss normalvariate lognormvariate betavariate expovariate"
    " getrandbits randbytes triangular seed vonmisesvariate gammavariate paretovariate weibullvariate binomialvariate"
)
_PATH_CALLS = (
    "read_text read_bytes write_text write_bytes open exists is_file is_dir is_symlink iterdir glob rglob walk stat lstat mkdir"
    " rmdir unlink touch rename replace symlink_to hardlink_to chmod resolve readlink owner group samefile cwd home expanduser"
)
_SOCKET_CALLS = "connect connect_ex bind listen accept send sendall sendto recv recvfrom"
_DATABASE_CALLS = "execute executemany executescript cursor commit rollback fetchone fetchall fetchmany"


def _under(module: str, names: str, rule: HazardRule) -> dict[str, HazardRule]:
    return {f"{module}.{name}": rule for name in names.split()}


FUNCTIONS: Mapping[
    str, HazardRule
] = {  # and classes that are called, by their full names; `*` for all functions of a module
    **_under(
        "time", "time time_ns monotonic monotonic_ns perf_counter perf_counter_ns process_time process_time_ns", _CLOCK
    ),
    **_under("time", "thread_time thread_time_ns clock_gettime clock_gettime_ns", _CLOCK),
    **_under("time", "localtime gmtime ctime asctime", replace(_CLOCK, harmless_with=1)),
    "time.strftime": replace(_CLOCK, harmless_with=2),
    **_under("arrow", "now utcnow", _CLOCK),
    **_under("pendulum", "now today tomorrow yesterday", _CLOCK),
    "django.utils.timezone.now": _CLOCK,
    "time.sleep": _PAUSE,
    **_under("asyncio", "sleep timeout", replace(_TIMER, deciding=(0, "delay"))),
    "asyncio.timeout_at": replace(_TIMER, deciding=(0, "when")),
    **_under("asyncio", "wait_for wait as_completed", replace(_TIMER, deciding=(1, "timeout"))),
    **_under("random", _DISTRIBUTIONS, _CHANCE),
    "random.Random": replace(_CHANCE, harmless_with=1),
    "random.SystemRandom": _CHANCE,
    **_under("secrets", "choice randbelow randbits token_bytes token_hex token_urlsafe", _CHANCE),
    "os.urandom": _CHANCE,
    "os.getrandom": _CHANCE,
    "numpy.random.*": _CHANCE,
    **_under("numpy.random", "default_rng RandomState SeedSequence", replace(_CHANCE, harmless_with=1)),
    **_under("uuid", "uuid1 uuid4 uuid6 uuid7", _NAME),
    **_under("os", "environ environb getenv getenvb putenv unsetenv getcwd getpid getppid cpu_count", _ENVIRONMENT),
    **_under("os", "getlogin uname", _ENVIRONMENT),
    "socket.gethostname": _ENVIRONMENT,
    **_under("platform", "node uname platform", _ENVIRONMENT),
    "getpass.getuser": _ENVIRONMENT,
    "builtins.open": _FILE,
    **_under(
        "os", "open listdir scandir walk stat lstat remove unlink rename replace mkdir makedirs rmdir access", _FILE
    ),
    **_under("os.path", "exists isfile isdir islink getsize getmtime getctime getatime", _FILE),
    **_under("shutil", "copy copy2 copyfile copytree move rmtree which disk_usage", _FILE),
    **_under(
        "tempfile", "mkstemp mkdtemp NamedTemporaryFile TemporaryFile TemporaryDirectory SpooledTemporaryFile", _FILE
    ),
    **_under("tempfile", "gettempdir", _FILE),
    **_under("socket", "socket create_connection create_server socketpair getaddrinfo gethostbyname getfqdn", _NETWORK),
    **_under("urllib.request", "urlopen urlretrieve", _NETWORK),
    **_under("http.client", "HTTPConnection HTTPSConnection", _NETWORK),
    **_under("smtplib", "SMTP SMTP_SSL", _NETWORK),
    **_under("ftplib", "FTP FTP_TLS", _NETWORK),
    **_under("requests", f"{_VERBS} Session session", _NETWORK),
    **{
        name: rule
        for one in _CLIENTS
        for name, rule in _under(one, f"{_VERBS} stream Client AsyncClient", _NETWORK).items()
    },
    **_under("aiohttp", "request ClientSession", _NETWORK),
    **_under("urllib3", "request PoolManager", _NETWORK),
    **_under("boto3", "client resource Session", _NETWORK),
    **_under("grpc", "insecure_channel secure_channel", _NETWORK),
    **_under("asyncio", "open_connection open_unix_connection start_server start_unix_server", _NETWORK),
    **_under("sqlite3", "connect", _NETWORK),
    **_under("psycopg", "connect", _NETWORK),
    **_under("psycopg2", "connect", _NETWORK),
    **_under("asyncpg", "connect create_pool", _NETWORK),
    **_under("pymysql", "connect", _NETWORK),
    **_under("aiosqlite", "connect", _NETWORK),
    **_under("sqlalchemy", "create_engine", _NETWORK),
    **_under("redis", "Redis from_url", _NETWORK),
    **_under("pymongo", "MongoClient", _NETWORK),
    **_under("subprocess", "run Popen call check_call check_output getoutput getstatusoutput", _PROCESS),
    **_under("os", "system popen fork forkpty posix_spawn posix_spawnp execv execve execvp spawnl spawnv", _PROCESS),
    **_under("asyncio", "create_subprocess_exec create_subprocess_shell", _PROCESS),
    **_under("multiprocessing", "Process Pool Manager", _PROCESS),
    **_under("threading", "Thread Timer", _THREAD),
    **_under("_thread", "start_new_thread", _THREAD),
    **_under("concurrent.futures", "ThreadPoolExecutor ProcessPoolExecutor InterpreterPoolExecutor", _THREAD),
    **_under("asyncio", "to_thread", _THREAD),
    **_under("multiprocessing.pool", "ThreadPool", _THREAD),
}

METHODS: Mapping[str, Mapping[str, HazardRule]] = {  # of a class and its subclasses; `*` for all
    "datetime.datetime": dict.fromkeys(("now", "utcnow", "today"), _CLOCK),
    "datetime.date": {"today": _CLOCK},
    "random.SystemRandom": {"*": _CHANCE},
    "pathlib.Path": dict.fromkeys(_PATH_CALLS.split(), _FILE),
    "asyncio.AbstractEventLoop": {
        **dict.fromkeys(("time", "call_later", "call_at"), _TIMER),
        "run_in_executor": _THREAD,
        **dict.fromkeys(("create_connection", "create_server", "getaddrinfo", "sock_connect"), _NETWORK),
        **dict.fromkeys(("subprocess_exec", "subprocess_shell"), _PROCESS),
    },
    "threading.Thread": {"start": _THREAD},
    "concurrent.futures.Executor": dict.fromkeys(("submit", "map"), _THREAD),
    "urllib.request.OpenerDirector": {"open": _NETWORK},
    "requests.Session": dict.fromkeys((*_VERBS.split(), "send"), _NETWORK),
    **{
        f"{one}.{kind}": dict.fromkeys((*_VERBS.split(), "send", "stream"), _NETWORK)
        for one in _CLIENTS
        for kind in ("Client", "AsyncClient")
    },
    "aiohttp.ClientSession": dict.fromkeys((*_VERBS.split(), "ws_connect"), _NETWORK),
    "socket.socket": dict.fromkeys(_SOCKET_CALLS.split(), _NETWORK),
    **{
        name: dict.fromkeys(_DATABASE_CALLS.split(), _NETWORK)
        for name in (
            "sqlite3.Connection", "sqlite3.Cursor", "psycopg.Connection", "psycopg.Cursor", "psycopg.AsyncConnection",
            "psycopg.AsyncCursor", "sqlalchemy.engine.Connection", "sqlalchemy.orm.Session",
        )
    },
    "redis.Redis": {"*": _NETWORK},
}  # fmt: skip


class Found(NamedTuple):
    """A rule, and the full name of what it is about."""

    name: str
    rule: HazardRule


class Registry:
    """The rules by the objects they are about, as far as their modules are loaded."""

    def __init__(self) -> None:
        self._objects: dict[int, Found] = {}
        self._kept: list[Any] = []  # an id counts as long as its object lives
        self._classes: list[tuple[type, str, Mapping[str, HazardRule]]] = []
        self._loaded = 0

    def _load(self) -> None:
        """Find the objects again if more modules are loaded than before."""
        if len(sys.modules) == self._loaded:
            return
        self._loaded = len(sys.modules)
        self._classes.clear()
        for name, rule in FUNCTIONS.items():
            found = _find_loaded(name)
            if isinstance(found, types.ModuleType) and name.endswith(".*"):
                for one, member in vars(found).items():
                    if callable(member) and not (one.startswith("_") or isinstance(member, type)):
                        self._note(member, Found(f"{found.__name__}.{one}", rule))
            elif found is not None:
                self._note(found, Found(name, rule))
        for name, methods in METHODS.items():
            found = _find_loaded(name)
            if isinstance(found, type):
                self._classes.append((found, name, methods))

    def _note(self, value: Any, found: Found) -> None:
        if id(value) not in self._objects or found.name in FUNCTIONS:
            self._objects[id(value)] = found
            self._kept.append(value)

    def find_by_object(self, value: Any) -> Found | None:
        """Find the rule about a live function, class or value."""
        self._load()
        if (found := self._objects.get(id(value))) is not None:
            return found
        if type(value) in (types.MethodType, types.BuiltinMethodType) and value.__self__ is not None:
            owner = value.__self__
            return self.find_by_method(owner if isinstance(owner, type) else type(owner), value.__name__)
        return None

    def find_by_method(self, owner: type, name: str) -> Found | None:
        """Find the rule about a method of a class."""
        self._load()
        if name.startswith("__"):
            return None
        for one, full_name, methods in self._classes:
            if issubclass(owner, one) and (rule := methods.get(name) or methods.get("*")) is not None:
                return Found(f"{full_name}.{name}", rule)
        return None


def find_by_name(name: str) -> Found | None:
    """Find the rule about the full name of something that is not loaded."""
    owner, _, last = name.rpartition(".")
    rule = FUNCTIONS.get(name) or METHODS.get(owner, {}).get(last) or FUNCTIONS.get(f"{owner}.*")
    return None if rule is None else Found(name, rule)


def _find_loaded(name: str) -> Any:
    words = name.removesuffix(".*").split(".")
    for count in range(len(words), 0, -1):
        value: Any = sys.modules.get(".".join(words[:count]))
        if value is not None:
            for word in words[count:]:
                value = vars(value).get(word) if isinstance(value, types.ModuleType | type) else None
            return value
    return None
