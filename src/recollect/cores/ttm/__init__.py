"""Token Turing Machines (Ryoo et al. 2023), and the Recurrent Transformer of their table 2.

Read ``reference.py`` beside the paper first: equations 1 to 8 as a plain loop, and both machines. Then ``core.py``, the
fast form; its parts are ``summarizers.py`` (read and write), ``processors.py`` (between the two) and ``erase_add.py``
(another write). ``recurrent_transformer.py`` is the baseline, made of the same parts. ``config.py`` has the settings.
"""

from typing import TYPE_CHECKING

from recollect.cores.ttm.config import RecurrentTransformerConfig as RecurrentTransformerConfig
from recollect.cores.ttm.config import TokenTuringMachineConfig as TokenTuringMachineConfig
from recollect.lazy import attach

if TYPE_CHECKING:
    from recollect.cores.ttm.core import TokenTuringMachine as TokenTuringMachine
    from recollect.cores.ttm.recurrent_transformer import RecurrentTransformer as RecurrentTransformer

__getattr__ = attach(__name__, {"RecurrentTransformer": "recurrent_transformer", "TokenTuringMachine": "core"})
