"""The store engine: commands, claims, processes, leases and ledgers, written once over the rows that each store keeps."""
