-- delete_app_workflows: forget the workflows of an App that has another name now.
-- Params: app.
DELETE FROM {schema}.app_workflow WHERE app = %(app)s
