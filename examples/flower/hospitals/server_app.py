"""The analyst's side: asks, adds up, writes the network."""

from panstream.models.federated import server_app

app = server_app()
