#!/usr/bin/env bash
# Stop the daemons that start.sh started, by their own files of process numbers, and remove the configuration.
set -u

etc=/etc/slurm
grep -qs '^ClusterName=ci$' $etc/slurm.conf || exit 0
dir=$(dirname "$(sed -n 's/^StateSaveLocation=//p' $etc/slurm.conf)")

timeout 5 scancel --user="$(id -un)" 2>/dev/null
pids=()
for file in "$dir"/slurmctld.pid "$dir"/slurmd-*.pid "$dir"/munged.pid; do
  [ -s "$file" ] || continue
  pid=$(cat "$file")
  # The number may be another process's by now.
  case "$(cat "/proc/$pid/comm" 2>/dev/null)" in slurmctld | slurmd | munged) pids+=("$pid") ;; esac
done
left() { for pid in ${pids[@]+"${pids[@]}"}; do kill -0 "$pid" 2>/dev/null && echo "$pid"; done; }
for pid in ${pids[@]+"${pids[@]}"}; do kill -TERM "$pid" 2>/dev/null; done
for _ in $(seq 100); do
  [ -z "$(left)" ] && break
  sleep 0.1
done
for pid in $(left); do kill -KILL "$pid" 2>/dev/null; done
rm -f $etc/slurm.conf $etc/gres.conf
