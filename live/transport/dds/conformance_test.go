package dds

import (
	"testing"

	"github.com/goatnote-inc/robocache/live/transport/transporttest"
)

func TestConformance(t *testing.T) {
	python, domain := rosPython(t)
	transporttest.Run(t, func(t *testing.T, rec *transporttest.Recording) transporttest.Server {
		return serveRecording(t, python, domain, rec)
	}, transporttest.Options{NoSchemas: true})
}
