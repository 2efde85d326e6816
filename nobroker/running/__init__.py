"""Running an application in production: worker processes, what supervises them, and what can be seen of them.

Map
- `config`: the values that say what runs. Where they come from: `sources`, the file `queue.yml`,
  environment.
- `supervisor`: starts processes, replaces those that end, ends them in good order. Its parts: `plans`, what
  it decides; `children`, who is there; `rolling`, restarts; `losses`, jobs whose process has gone;
  `appearance`, what others see of it; `cgroups`, limits that the kernel holds.
- `forking`: starts a child; `tasks`, what it is told; `board`, what it says; `inside`: it starts none
  itself.
- `member`: what runs in a worker process; `keeper` minds it; `signals`, as numbers in a pipe; `settling`:
  what becomes of lost jobs.
- `registry`: the processes of a queue, as anybody can see them; `spoken`: what they say, as JSON and back.
- `presence`: what stands beside a worker so that it is seen; `notify`: systemd; `titles`: of processes.
- `figures`: what the operating system says of this process. `info`: all that can be seen, as plain values.
- `metrics`: what each job took; `histogram`: in sums; `recording`: in a file. `logs`: the log, by name.
"""
