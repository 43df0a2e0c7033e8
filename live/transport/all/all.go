// Package all registers all transports.
package all

import (
	_ "github.com/goatnote-inc/robocache/live/transport/dds"      // dds://
	_ "github.com/goatnote-inc/robocache/live/transport/foxglove" // foxglove://, foxgloves://
	_ "github.com/goatnote-inc/robocache/live/transport/mcap"     // mcap://
)
