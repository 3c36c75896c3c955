"""Learn one network from the records of several holders that do not share them.

Each holder answers questions within its own budget and does not trust the analyst. The package has the questions with
their answers and losses, holders with their ledgers, the transports between both sides (in process, HTTPS, Flower), and
the methods that learn from the answers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from panstream.primitives.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from panstream.models.federated.analyst import FederatedModel as FederatedModel
    from panstream.models.federated.analyst import Federation as Federation
    from panstream.models.federated.automatic_method import AutomaticMethod as AutomaticMethod
    from panstream.models.federated.federated_pairs import FederatedPairs as FederatedPairs
    from panstream.models.federated.flower import client_app as client_app
    from panstream.models.federated.flower import server_app as server_app
    from panstream.models.federated.gaussian_methods import FederatedTree as FederatedTree
    from panstream.models.federated.gaussian_methods import GaussianSums as GaussianSums
    from panstream.models.federated.gaussian_methods import IndependentMarginals as IndependentMarginals
    from panstream.models.federated.holder import Holder as Holder
    from panstream.models.federated.ledger import HolderLedger as HolderLedger
    from panstream.models.federated.secure_sums import Roster as Roster
    from panstream.models.federated.thesis_methods import AverageScores as AverageScores
    from panstream.models.federated.thesis_methods import DistributedParameters as DistributedParameters
    from panstream.models.federated.thesis_methods import MajorityVoting as MajorityVoting
    from panstream.models.federated.thesis_methods import NoisyModel as NoisyModel
    from panstream.models.federated.thesis_methods import NoisyStatistics as NoisyStatistics
    from panstream.primitives.certificates import Authority as Authority
    from panstream.primitives.signing import write_signing_key as write_signing_key

_MODULES = {
    "Authority": "panstream.primitives.certificates",
    "AutomaticMethod": "panstream.models.federated.automatic_method",
    "AverageScores": "panstream.models.federated.thesis_methods",
    "DistributedParameters": "panstream.models.federated.thesis_methods",
    "FederatedModel": "panstream.models.federated.analyst",
    "FederatedPairs": "panstream.models.federated.federated_pairs",
    "FederatedTree": "panstream.models.federated.gaussian_methods",
    "Federation": "panstream.models.federated.analyst",
    "GaussianSums": "panstream.models.federated.gaussian_methods",
    "Holder": "panstream.models.federated.holder",
    "HolderLedger": "panstream.models.federated.ledger",
    "IndependentMarginals": "panstream.models.federated.gaussian_methods",
    "MajorityVoting": "panstream.models.federated.thesis_methods",
    "NoisyModel": "panstream.models.federated.thesis_methods",
    "NoisyStatistics": "panstream.models.federated.thesis_methods",
    "Roster": "panstream.models.federated.secure_sums",
    "client_app": "panstream.models.federated.flower",
    "server_app": "panstream.models.federated.flower",
    "write_signing_key": "panstream.primitives.signing",
}

__all__ = sorted(_MODULES)

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy_exports(__name__, _MODULES)
