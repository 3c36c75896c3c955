"""A Mosquitto of one's own for an example, and meters that send to it."""

import contextlib
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path

from paho.mqtt.client import CallbackAPIVersion, Client, MQTTv5

_PLACES = "/usr/sbin:/usr/local/sbin:/usr/bin:/usr/local/bin:/opt/homebrew/sbin"


@contextlib.contextmanager
def mosquitto() -> Iterator[int]:
    """Run a broker on a free port of the loopback, and give the port."""
    program = shutil.which("mosquitto", path=_PLACES)
    if program is None:
        raise SystemExit("this example needs Mosquitto (Debian: apt install mosquitto)")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with tempfile.TemporaryDirectory() as folder:
        settings = Path(folder) / "mosquitto.conf"
        settings.write_text(f"listener {port} 127.0.0.1\nallow_anonymous true\nmax_queued_messages 0\n")
        with subprocess.Popen([program, "-c", str(settings)], stderr=subprocess.DEVNULL) as process:
            try:
                yield port
            finally:
                process.terminate()


def publish(port: int, messages: Iterable[tuple[str, str]]) -> None:
    """Send messages, and wait until the broker has them."""
    client = Client(CallbackAPIVersion.VERSION2, protocol=MQTTv5)
    client.max_inflight_messages_set(500)
    client.connect("127.0.0.1", port)
    client.loop_start()
    for sent in [client.publish(topic, payload, qos=1) for topic, payload in messages]:
        sent.wait_for_publish(60)
    client.disconnect()
    client.loop_stop()
