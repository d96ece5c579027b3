"""What the engine does on a GPU, measured on a machine that has little but torch and the GPU."""

from experiments.gpu.absent import import_without

MISSING = import_without()  # before anything else imports the servers, in every process
