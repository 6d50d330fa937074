#!/usr/bin/env bash
# Start a SLURM of this one machine: one controller, four nodes, no systemd, no cgroups, no accounting. Run as root.
# Partitions cpu, gpu-v100, gpu-a100, gpu-h100 of one node each; those of the last three have two GPUs that do nothing.
# SLURM_TEST_DIR is its folder, SLURM_TEST_PORT the first of its ports. Leaves a cluster that it did not make alone.
set -euo pipefail

dir=${SLURM_TEST_DIR:-/tmp/slurm-ci}
port=${SLURM_TEST_PORT:-6817}
# Jobs start srun with a bare environment, which finds the configuration in this folder alone.
etc=/etc/slurm
host=$(uname -n | cut -d. -f1)

if [ -e $etc/slurm.conf ]; then
  grep -q '^ClusterName=ci$' $etc/slurm.conf || { echo "$etc/slurm.conf is of another cluster" >&2; exit 1; }
  "$(dirname "$0")/stop.sh"
fi
if [ -e "$dir" ] && [ ! -O "$dir" ]; then echo "$dir is another user's" >&2; exit 1; fi
rm -rf "$dir"
mkdir -p $etc "$dir"/state "$dir"/spool "$dir"/log "$dir"/dev
chmod 755 "$dir"

# MinJobAge: ended jobs stay to be asked about. KillWait: seconds between SIGTERM and SIGKILL. SlurmctldTimeout: commands
# try for half of it to reach a controller that is away. OverMemoryKill: a job that takes more memory than it asked for
# is killed within a second or two, without cgroups.
cat > $etc/slurm.conf <<CONF
ClusterName=ci
SlurmctldHost=$host(127.0.0.1)
SlurmctldPort=$port
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
CredType=cred/munge
AuthInfo=socket=$dir/munge.socket
StateSaveLocation=$dir/state
SlurmdSpoolDir=$dir/spool/%n
SlurmctldPidFile=$dir/slurmctld.pid
SlurmdPidFile=$dir/slurmd-%n.pid
SlurmctldLogFile=$dir/log/slurmctld.log
SlurmdLogFile=$dir/log/slurmd-%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/linux
JobAcctGatherFrequency=1
JobAcctGatherParams=OverMemoryKill
JobCompType=jobcomp/filetxt
JobCompLoc=$dir/log/jobcomp.txt
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU_Memory
SchedulerType=sched/backfill
SchedulerParameters=bf_interval=1,sched_interval=1,batch_sched_delay=0,default_queue_depth=1000
GresTypes=gpu
EnforcePartLimits=ALL
SlurmdParameters=config_overrides
MpiDefault=none
ReturnToService=2
MinJobAge=3600
KillWait=2
InactiveLimit=0
OverTimeLimit=0
SlurmctldTimeout=10
SlurmdTimeout=60
UnkillableStepTimeout=30
DefMemPerCPU=256
MaxArraySize=1001
NodeName=gpu-v100-01 NodeHostname=$host NodeAddr=127.0.0.1 Port=$((port + 101)) CPUs=4 RealMemory=16000 Gres=gpu:v100:2 Feature=v100 State=UNKNOWN
NodeName=gpu-a100-01 NodeHostname=$host NodeAddr=127.0.0.1 Port=$((port + 102)) CPUs=4 RealMemory=16000 Gres=gpu:a100:2 Feature=a100 State=UNKNOWN
NodeName=gpu-h100-01 NodeHostname=$host NodeAddr=127.0.0.1 Port=$((port + 103)) CPUs=4 RealMemory=16000 Gres=gpu:h100:2 Feature=h100 State=UNKNOWN
NodeName=cpu-01      NodeHostname=$host NodeAddr=127.0.0.1 Port=$((port + 104)) CPUs=4 RealMemory=16000 State=UNKNOWN
PartitionName=cpu      Nodes=cpu-01      Default=YES MaxTime=1:00:00 DefaultTime=10 State=UP
PartitionName=gpu-v100 Nodes=gpu-v100-01 MaxTime=1:00:00 DefaultTime=10 State=UP
PartitionName=gpu-a100 Nodes=gpu-a100-01 MaxTime=1:00:00 DefaultTime=10 State=UP
PartitionName=gpu-h100 Nodes=gpu-h100-01 MaxTime=1:00:00 DefaultTime=10 State=UP
CONF

# slurmd wants a device file for each GPU: copies of /dev/null.
for type in v100 a100 h100; do
  for i in 0 1; do mknod "$dir/dev/$type-$i" c 1 3; done
done
cat > $etc/gres.conf <<CONF
AutoDetect=off
NodeName=gpu-v100-01 Name=gpu Type=v100 File=$dir/dev/v100-[0-1]
NodeName=gpu-a100-01 Name=gpu Type=a100 File=$dir/dev/a100-[0-1]
NodeName=gpu-h100-01 Name=gpu Type=h100 File=$dir/dev/h100-[0-1]
CONF

# A munged with a key and a socket of its own leaves one of the machine alone.
(umask 077; dd if=/dev/urandom of="$dir/munge.key" bs=1024 count=1 status=none)
munged --force --num-threads=2 --key-file="$dir/munge.key" --socket="$dir/munge.socket" --pid-file="$dir/munged.pid" \
  --log-file="$dir/log/munged.log" --seed-file="$dir/munge.seed"
slurmctld
for node in gpu-v100-01 gpu-a100-01 gpu-h100-01 cpu-01; do slurmd -N $node; done

while [ $SECONDS -lt 30 ]; do
  [ "$(timeout 5 sinfo -h -N -t idle -o %N 2>/dev/null | sort -u | wc -l)" = 4 ] && exit 0
  sleep 0.2
done
echo "the nodes did not become idle:" >&2
tail -n 5 "$dir"/log/*.log >&2
"$(dirname "$0")/stop.sh"
exit 1
