-- close_epoch: whoever has written so far writes no more. Waits for the batches that are under way.
WITH closed AS (UPDATE {schema}.writer SET epoch = NULL WHERE epoch IS NOT NULL)
UPDATE {schema}.process SET retired = true WHERE NOT retired
