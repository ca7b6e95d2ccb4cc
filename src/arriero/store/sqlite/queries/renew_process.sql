-- renew_process: prolong a process's lease unless it is retired.
-- Params: process_no, lease_until. Row count 0: it is retired.
UPDATE arriero_process SET lease_until = :lease_until WHERE process_no = :process_no AND NOT retired
