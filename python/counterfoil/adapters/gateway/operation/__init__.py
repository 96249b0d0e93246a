"""What operators see and use: metrics, verdicts in the log, the admin app, `--observe`.

`application` puts it in; `programs.gateway` serves the admin app.
"""
