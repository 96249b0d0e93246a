"""Runs handlers for events so that each effect happens once; the client's connection and users use it."""

from counterfoil.adapters.dispatcher.reports import DispatchReport as DispatchReport
from counterfoil.adapters.dispatcher.reports import DispatchTicket as DispatchTicket
from counterfoil.adapters.dispatcher.reports import Policy as Policy
from counterfoil.adapters.dispatcher.streams import Dispatcher as Dispatcher
