"""Running an application in production: worker processes, what supervises them, and what can be seen of them.

Map
- `config`: the values that say what runs. Where they come from: `sources`, the file `queue.yml`, environment.
- `supervisor`: starts processes, replaces those that end, ends them in good order.
- `registry`: the processes of a queue, as anybody can see them; `spoken`: what they say, as JSON and back.
- `presence`: what stands beside a worker so that it is seen; `notify`: systemd; `titles`: of processes.
- `figures`: what the operating system says of this process. `info`: all that can be seen, as plain values.
- `metrics`: what each job took; `histogram`: in sums; `recording`: in a file. `logs`: the log, by name.
"""
