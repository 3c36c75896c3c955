"""The analyst's side: asks, adds up, writes the network."""

from panstream.federated.flower import server_app

app = server_app()
