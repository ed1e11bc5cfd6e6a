package servers

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"syscall"
)

// ticksPerSecond is USER_HZ, which Linux fixes at 100 for /proc.
const ticksPerSecond = 100

// dieWithParent asks the kernel to end the child when this process ends.
func dieWithParent(sig syscall.Signal) *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: sig}
}

// runAs makes the child of attr run as the given user.
func runAs(attr *syscall.SysProcAttr, uid, gid uint32) error {
	attr.Credential = &syscall.Credential{Uid: uid, Gid: gid}
	return nil
}

// cpuSeconds returns the user and system time of a process so far.
func cpuSeconds(pid int) (float64, error) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, fmt.Errorf("read processor time: %w", err)
	}
	// The command name may hold spaces and parentheses; fields count from the last one.
	fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
	const utime, stime = 11, 12
	if len(fields) <= stime {
		return 0, fmt.Errorf("read processor time: short stat line of process %d", pid)
	}
	var ticks uint64
	for _, i := range []int{utime, stime} {
		n, err := strconv.ParseUint(string(fields[i]), 10, 64)
		if err != nil {
			return 0, fmt.Errorf("read processor time: %w", err)
		}
		ticks += n
	}
	return float64(ticks) / ticksPerSecond, nil
}
