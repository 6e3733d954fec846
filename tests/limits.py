"""How long a test waits for another process."""

HUNG = 1_800  # seconds, which only a process that hangs can reach, however loaded the machine is
