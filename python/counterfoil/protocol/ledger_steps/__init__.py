"""The steps that change a ledger, one function each, over any book that can get and put records.

A step raises before its first put, or not at all, and knows no clock and no disk.  Every ledger runs these
same steps inside a transaction of its own, so that stores cannot differ in meaning.
"""

from counterfoil.protocol.ledger_steps.aging import expire as expire
from counterfoil.protocol.ledger_steps.aging import recover as recover
from counterfoil.protocol.ledger_steps.book import Book as Book
from counterfoil.protocol.ledger_steps.claiming import begin as begin
from counterfoil.protocol.ledger_steps.claiming import claim as claim
from counterfoil.protocol.ledger_steps.claiming import claim_again as claim_again
from counterfoil.protocol.ledger_steps.claiming import keys_of as keys_of
from counterfoil.protocol.ledger_steps.claiming import write_intent as write_intent
from counterfoil.protocol.ledger_steps.marks import AHEAD_MAX as AHEAD_MAX
from counterfoil.protocol.ledger_steps.marks import begin_stream as begin_stream
from counterfoil.protocol.ledger_steps.marks import check_witness as check_witness
from counterfoil.protocol.ledger_steps.marks import put_base as put_base
from counterfoil.protocol.ledger_steps.marks import skip as skip
from counterfoil.protocol.ledger_steps.settling import await_input as await_input
from counterfoil.protocol.ledger_steps.settling import begin_cancelling as begin_cancelling
from counterfoil.protocol.ledger_steps.settling import mark_delivered as mark_delivered
from counterfoil.protocol.ledger_steps.settling import record as record
from counterfoil.protocol.ledger_steps.settling import release as release
from counterfoil.protocol.ledger_steps.settling import resolve as resolve
from counterfoil.protocol.ledger_steps.settling import settle as settle
from counterfoil.protocol.ledger_steps.settling import settle_begun as settle_begun
from counterfoil.protocol.ledger_steps.unkeyed import KeptCall as KeptCall
from counterfoil.protocol.ledger_steps.unkeyed import close_call as close_call
from counterfoil.protocol.ledger_steps.unkeyed import kept_calls as kept_calls
from counterfoil.protocol.ledger_steps.unkeyed import note_adopted as note_adopted
from counterfoil.protocol.ledger_steps.unkeyed import take_call as take_call
from counterfoil.protocol.ledger_steps.values import Begun as Begun
from counterfoil.protocol.ledger_steps.values import Horizon as Horizon
from counterfoil.protocol.ledger_steps.values import Intent as Intent
from counterfoil.protocol.ledger_steps.values import Moment as Moment
from counterfoil.protocol.ledger_steps.values import Recovered as Recovered
from counterfoil.protocol.ledger_steps.values import Settlement as Settlement
