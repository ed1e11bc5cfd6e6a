//go:build !linux

package servers

import (
	"errors"
	"syscall"
)

func dieWithParent(syscall.Signal) *syscall.SysProcAttr { return &syscall.SysProcAttr{} }

func runAs(*syscall.SysProcAttr, uint32, uint32) error {
	return errors.New("change the user of a server: only done on linux")
}

func cpuSeconds(int) (float64, error) {
	return 0, errors.New("read processor time: only done on linux")
}
