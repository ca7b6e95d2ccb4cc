-- renew_process: prolong a lease, unless its process is retired. No row: it is of an epoch that is over.
-- Params: process_no, epoch, lease_until, renewed_at.
UPDATE {schema}.process
   SET lease_until = CASE WHEN retired THEN lease_until ELSE %(lease_until)s END, renewed_at = %(renewed_at)s
 WHERE process_no = %(process_no)s
   AND EXISTS (SELECT 1 FROM {schema}.writer WHERE process_no = %(process_no)s AND epoch = %(epoch)s)
RETURNING NOT retired
