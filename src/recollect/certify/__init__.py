"""The streaming certificate: checks that a memory core follows the contract of :mod:`recollect.cores.contract`.

    from recollect.certify import certify, load
    print(certify(load("hcam")))            # a core of the table, at certification size
    print(certify(MyCore(), input_shape=(8,)))

Names are imported when they are first used, so that the pytest plugin costs nothing before.
"""

from typing import TYPE_CHECKING

from recollect.lazy import attach

if TYPE_CHECKING:
    from recollect.certify.card import Card as Card
    from recollect.certify.card import Line as Line
    from recollect.certify.card import summary as summary
    from recollect.certify.loading import Candidate as Candidate
    from recollect.certify.loading import from_config as from_config
    from recollect.certify.loading import load as load
    from recollect.certify.loading import small_config as small_config
    from recollect.certify.run import LINES as LINES
    from recollect.certify.run import SLOW_LINES as SLOW_LINES
    from recollect.certify.run import certify as certify
    from recollect.certify.run import certify_many as certify_many

__getattr__ = attach(
    __name__,
    {
        **dict.fromkeys(("Card", "Line", "summary"), "card"),
        **dict.fromkeys(("Candidate", "from_config", "load", "small_config"), "loading"),
        **dict.fromkeys(("LINES", "SLOW_LINES", "certify", "certify_many"), "run"),
    },
)
