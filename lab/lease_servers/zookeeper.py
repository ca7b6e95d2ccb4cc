"""A server of ZooKeeper on a free port, ended with its process."""

import shutil
import socket
from collections.abc import Sequence
from pathlib import Path

from .process import ServerProcess
from .unavailable import Unavailable

CLASSES = Path("/usr/share/java/zookeeper.jar")  # names the other jars that it needs
JAVA = ("-Xmx64m", "-Xss512k", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Dzookeeper.forceSync=no")


def start_zookeeper(**settings: object) -> ServerProcess:
    """Start a server. ``settings`` go into its configuration. Raises Unavailable."""
    if not CLASSES.exists() or shutil.which("java") is None:
        raise Unavailable("ZooKeeper is not installed; run: RUNLEVEL=1 apt-get install zookeeper default-jre-headless")

    def build_command(port: int, folder: Path) -> Sequence[str]:
        all_settings = {
            "dataDir": folder / "data",
            "clientPort": port,
            "clientPortAddress": "127.0.0.1",
            "tickTime": 500,
            "maxSessionTimeout": 60_000,
            "admin.enableServer": "false",
            "maxClientCnxns": 0,
            "4lw.commands.whitelist": "*",
            **settings,
        }
        (folder / "zoo.cfg").write_text("".join(f"{name}={value}\n" for name, value in all_settings.items()))
        main = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
        return ["java", *JAVA, "-cp", str(CLASSES), main, str(folder / "zoo.cfg")]

    return ServerProcess(build_command, lambda port: ask_server(port, "srvr").startswith("Zookeeper version"))


def ask_server(port: int, command: str) -> str:
    """The server's answer to one of its commands of four letters; empty: it does not answer."""
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=1) as connection:
            connection.sendall(command.encode())
            return b"".join(iter(lambda: connection.recv(65536), b"")).decode()
    except OSError:
        return ""
