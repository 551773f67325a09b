"""A simulated rack: hosts and test VMs without hardware that speak the real protocols.

`python -m fleet.lab` (``process.py`` starts it as a child) runs a ``Rack`` of ``Host`` objects. Each host has an SSH server
(``network.py``, ``sessions.py``) whose commands are real processes; its virsh (``standins/virsh.py``) asks the rack over a
Unix socket (``calls.py``), which answers in libvirt's words (``virsh.py``). A domain that was created boots a ``Guest``: an
SSH server with the keys of the domain's seed disk, in whose sessions the real runner runs against stand-in tools
(``standins/``, ``nvml/``) that replay ``recordings/``. Faults (``faults.py``) and tenants are put in and taken out through
``control.py``; ``records.py`` keeps what survives a restart.
"""
