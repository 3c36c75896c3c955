"""A private Mosquitto on a free port of the loopback, and messages to it."""

import shutil
import subprocess
import threading
from collections.abc import Iterable
from pathlib import Path

from paho.mqtt.client import CallbackAPIVersion, Client, MQTTv5

from tests.conftest import SEARCH_PATH
from tests.ports import free_port


class Mosquitto:
    """Stopped by its process; started again with the same port and, where it persists, the same sessions."""

    def __init__(self, directory: Path, *settings: str, persists: bool = False) -> None:
        self.port = free_port()
        lines = [f"listener {self.port} 127.0.0.1", "max_queued_messages 0", *settings]
        lines += [f"persistence {str(persists).lower()}", f"persistence_location {directory}/", "user root"]
        if "allow_anonymous false" not in lines:
            lines.append("allow_anonymous true")
        self.file = directory / "mosquitto.conf"
        self.file.write_text("\n".join(lines) + "\n")
        self.start()

    def start(self) -> None:
        program = shutil.which("mosquitto", path=SEARCH_PATH)
        assert program is not None, "mosquitto is needed: apt-get install mosquitto"
        self.process = subprocess.Popen(
            [program, "-c", str(self.file), "-v"], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
        )
        assert self.process.stderr is not None
        for line in self.process.stderr:
            if " running" in line:
                break
        threading.Thread(target=self.process.stderr.read, daemon=True).start()  # a full pipe must not stop it

    def stop(self) -> None:
        self.process.terminate()
        self.process.wait()
        if self.process.stderr is not None:
            self.process.stderr.close()

    def url(self, topic: str = "meters/#") -> str:
        return f"mqtt://127.0.0.1:{self.port}/{topic}"

    def publish(self, messages: Iterable[tuple[str, str | bytes]], *, retain: bool = False) -> None:
        """Send messages, and wait until the broker has them."""
        client = Client(CallbackAPIVersion.VERSION2, protocol=MQTTv5)
        client.connect("127.0.0.1", self.port)
        client.loop_start()
        try:
            sent = [client.publish(topic, payload, qos=1, retain=retain) for topic, payload in messages]
            for each in sent:
                each.wait_for_publish(20)
        finally:
            client.disconnect()
            client.loop_stop()
