"""Measure the engine on a GPU, on a machine with little but torch and the GPU."""

from experiments.gpu.absent import import_without

MISSING = import_without()  # before anything else imports the servers, in every process
