package dds

import (
	"os/exec"
	"testing"

	"github.com/goatnote-inc/robocache/live/transport/transporttest"
)

func TestConformance(t *testing.T) {
	python, domain := rosPython(t)
	if exec.Command(python, "-c", "import tf2_msgs.msg").Run() != nil {
		t.Skip("no tf2_msgs in .build/ros; scripts/engines.sh ros builds it")
	}
	serve := func(t *testing.T, rec *transporttest.Recording) transporttest.Server {
		for i := range rec.Messages {
			m := &rec.Messages[i]
			for len(m.Data)%4 != 0 { // DDS transmits multiples of 4 bytes
				m.Data = append(m.Data, 0)
			}
		}
		return transporttest.NewProcess(t, "dds://"+domain, func() *exec.Cmd {
			return exec.Command(
				python,
				"../../../python/tests/ros_publisher.py",
				rec.Path,
				"--orders",
			)
		})
	}
	transporttest.Run(t, serve, transporttest.Options{NoSchemas: true})
}
