// Package transporttest is the conformance suite of the transports of live messages. It plays
// recordings through a transport and compares the received messages with the sent ones. Test names
// begin with the clause of package transport that they check.
//
// A test of a transport passes a function that returns a Server, which publishes the messages of a
// recording:
//
//	func TestConformance(t *testing.T) {
//		transporttest.Run(t, func(t *testing.T, rec *transporttest.Recording) transporttest.Server {
//			return newServer(t, rec)
//		}, transporttest.Options{LogTimes: true})
//	}
//
// NewProcess starts a publisher that is a separate program.
package transporttest
