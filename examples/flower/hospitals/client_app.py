"""The hospitals' side: answers questions within the budget of the holder that the node names."""

from panstream.models.federated import client_app

app = client_app()
