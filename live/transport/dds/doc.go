// Package dds receives the messages of ROS 2 publishers through Cyclone DDS, whose library is
// opened at run time. The URI is dds://DOMAIN, for example dds://0. A Live uses the times when
// messages were sent as their arrival if ?arrival=log follows.
//
// # Contract
//
//	dds.D1  A message is the serialized payload (CDR) as its publisher sent it, of any type. No
//	        code is generated for types, and no schema is needed.
//	dds.D2  The quality of service follows each publisher's offer: reliable or best effort,
//	        transient local or volatile. Publishers with different offers share a topic.
//	dds.D3  A transient local message is delivered once, also if its publisher is lost and found
//	        again.
//	dds.D4  Messages above MaxMessage are dropped before they are stored. Messages beyond MaxQueue
//	        that wait for receive are dropped and reported (transport.Reporter).
//	dds.D5  If the library is missing, Run returns an error of class Unsupported.
//
// Intuitively, each topic is declared to Cyclone DDS as a type with one octet. Cyclone DDS checks
// that octet, keeps the whole payload, and hands it out with dds_takecdr. Topics are matched by
// name and by type name, because the declared type has no type information.
//
// Limits: DDS transmits multiples of 4 bytes, so up to 3 bytes of padding can end a payload, as in
// raw subscriptions of rclpy. Payloads of big-endian publishers are delivered with a little-endian
// header, because Cyclone DDS converts the header and leaves the payload as it is. DDS security,
// partitions and shared memory are not used.
//
// The environment variables ROS_AUTOMATIC_DISCOVERY_RANGE=LOCALHOST and ROS_LOCALHOST_ONLY=1
// restrict discovery as in ROS 2. CYCLONEDDS_URI sets interfaces, peers and limits, as for
// rmw_cyclonedds_cpp.
package dds
