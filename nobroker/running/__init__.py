"""Running an application in production: worker processes, what supervises them, and what can be seen of them.

Map
- `config`: the values that say what runs. Where they come from: `sources`, the file `queue.yml`, environment.
- `supervisor`: starts processes, replaces those that end, ends them in good order.
- `registry`: the processes of a queue, as anybody can see them.
- `figures`: what the operating system says of this process.
- `metrics`: what each job took.
"""
