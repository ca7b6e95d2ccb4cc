-- select_beginner: whether a process start may begin tasks. No row: there is no such process start.
-- Params: process_no, epoch.
SELECT NOT process.retired AND EXISTS (
         SELECT 1 FROM {schema}.writer WHERE writer.process_no = process.process_no AND writer.epoch = %(epoch)s)
  FROM {schema}.process WHERE process.process_no = %(process_no)s
