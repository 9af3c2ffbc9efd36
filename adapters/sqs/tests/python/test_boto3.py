"""boto3 with a gateway, which the environment names as the SDKs of AWS have it."""

import json
import os
import threading
import time
import unittest
import uuid

import boto3
import botocore.config
import botocore.exceptions

URL = os.environ["AWS_ENDPOINT_URL_SQS"]
OTHER = os.environ["OTHER_ENDPOINT_URL"]  # another gateway of the same broker


def client(endpoint=URL, **arguments):
    # Requests are not repeated: each test sees what the gateway has answered first.
    config = botocore.config.Config(retries={"total_max_attempts": 1}, read_timeout=240, **arguments.pop("config", {}))
    return boto3.client("sqs", endpoint_url=endpoint, config=config, **arguments)


class TestBoto3(unittest.TestCase):
    def setUp(self):
        self.sqs = client()
        self.name = f"boto3-{uuid.uuid4().hex}"

    def create(self, suffix="", **attributes):
        url = self.sqs.create_queue(QueueName=self.name + suffix, Attributes=attributes)["QueueUrl"]
        self.addCleanup(self.delete, url)
        return url

    def delete(self, url):
        try:
            self.sqs.delete_queue(QueueUrl=url)
        except self.sqs.exceptions.QueueDoesNotExist:
            pass

    def arn(self, url):
        return self.sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]

    def receive(self, url, **arguments):
        arguments = {"AttributeNames": ["All"], "MessageAttributeNames": ["All"], "WaitTimeSeconds": 20, **arguments}
        return self.sqs.receive_message(QueueUrl=url, **arguments).get("Messages", [])

    def refused(self, code, call, **arguments):
        with self.assertRaises(botocore.exceptions.ClientError) as raised:
            call(**arguments)
        self.assertEqual(raised.exception.response["Error"]["Code"], code)
        return raised.exception

    def test_a_queue_from_its_creation_to_its_end(self):
        url = self.sqs.create_queue(
            QueueName=self.name,
            Attributes={"VisibilityTimeout": "60", "MessageRetentionPeriod": "3600", "DelaySeconds": "0"},
            tags={"team": "orders", "sign": "<&>"},
        )["QueueUrl"]
        self.assertEqual(self.sqs.get_queue_url(QueueName=self.name)["QueueUrl"], url)
        self.assertIn(url, self.sqs.list_queues(QueueNamePrefix=self.name)["QueueUrls"])
        self.assertEqual(self.sqs.list_queue_tags(QueueUrl=url)["Tags"], {"team": "orders", "sign": "<&>"})
        self.sqs.tag_queue(QueueUrl=url, Tags={"more": "1"})
        self.sqs.untag_queue(QueueUrl=url, TagKeys=["team", "sign"])
        self.assertEqual(self.sqs.list_queue_tags(QueueUrl=url)["Tags"], {"more": "1"})
        self.sqs.set_queue_attributes(QueueUrl=url, Attributes={"VisibilityTimeout": "70"})
        attributes = self.sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["All"])["Attributes"]
        self.assertEqual((attributes["VisibilityTimeout"], attributes["MessageRetentionPeriod"]), ("70", "3600"))
        # boto3 verifies the digest of the body.
        sent = self.sqs.send_message(
            QueueUrl=url,
            MessageBody="<é 😀 & \t\n>",
            MessageGroupId="tenant",
            MessageAttributes={
                "text": {"DataType": "String", "StringValue": "v"},
                "number": {"DataType": "Number.int", "StringValue": "-7"},
                "bytes": {"DataType": "Binary.png", "BinaryValue": b"\x00\xff\x80"},
            },
            MessageSystemAttributes={"AWSTraceHeader": {"DataType": "String", "StringValue": "Root=1-5759e988-bd862e3fe1be46a994272793"}},
        )
        self.assertIn("MD5OfMessageAttributes", sent)
        (message,) = self.receive(url)
        self.assertEqual((message["Body"], message["MessageId"]), ("<é 😀 & \t\n>", sent["MessageId"]))
        self.assertEqual(message["MD5OfMessageAttributes"], sent["MD5OfMessageAttributes"])
        self.assertEqual(
            message["MessageAttributes"],
            {
                "text": {"DataType": "String", "StringValue": "v"},
                "number": {"DataType": "Number.int", "StringValue": "-7"},
                "bytes": {"DataType": "Binary.png", "BinaryValue": b"\x00\xff\x80"},
            },
        )
        self.assertEqual(message["Attributes"]["MessageGroupId"], "tenant")
        self.assertEqual(message["Attributes"]["ApproximateReceiveCount"], "1")
        self.assertEqual(message["Attributes"]["SenderId"], os.environ["AWS_ACCESS_KEY_ID"])
        self.assertTrue(message["Attributes"]["AWSTraceHeader"].startswith("Root=1-"))
        counts = ["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible"]
        shown = self.sqs.get_queue_attributes(QueueUrl=url, AttributeNames=counts)["Attributes"]
        self.assertEqual([shown[name] for name in counts], ["0", "1"])
        self.sqs.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])
        shown = self.sqs.get_queue_attributes(QueueUrl=url, AttributeNames=counts)["Attributes"]
        self.assertEqual([shown[name] for name in counts], ["0", "0"])
        self.sqs.send_message(QueueUrl=url, MessageBody="purged")
        self.sqs.purge_queue(QueueUrl=url)
        self.assertEqual(self.receive(url, WaitTimeSeconds=0), [])
        self.sqs.delete_queue(QueueUrl=url)
        with self.assertRaises(self.sqs.exceptions.QueueDoesNotExist):
            self.sqs.get_queue_url(QueueName=self.name)

    def test_batches_of_ten(self):
        url = self.create()
        entries = [{"Id": str(i), "MessageBody": f"m{i}", "DelaySeconds": 901 if i == 3 else 0} for i in range(10)]
        out = self.sqs.send_message_batch(QueueUrl=url, Entries=entries)
        self.assertEqual([s["Id"] for s in out["Successful"]], [str(i) for i in range(10) if i != 3])
        self.assertEqual([(f["Id"], f["Code"], f["SenderFault"]) for f in out["Failed"]], [("3", "InvalidParameterValue", True)])
        messages = self.receive(url, MaxNumberOfMessages=10)
        self.assertEqual(len(messages), 9)
        entries = [{"Id": str(i), "ReceiptHandle": m["ReceiptHandle"], "VisibilityTimeout": 100} for i, m in enumerate(messages)]
        out = self.sqs.change_message_visibility_batch(QueueUrl=url, Entries=entries)
        self.assertEqual((len(out["Successful"]), out.get("Failed")), (9, None))
        entries = [{"Id": str(i), "ReceiptHandle": m["ReceiptHandle"]} for i, m in enumerate(messages)]
        entries.append({"Id": "none", "ReceiptHandle": "%"})
        out = self.sqs.delete_message_batch(QueueUrl=url, Entries=entries)
        self.assertEqual(len(out["Successful"]), 9)
        self.assertEqual([(f["Id"], f["Code"]) for f in out["Failed"]], [("none", "ReceiptHandleIsInvalid")])

    def test_a_receive_that_waits_is_woken_by_a_send_of_another_gateway(self):
        url = self.create()
        got = []
        waiting = threading.Thread(target=lambda: got.extend(self.receive(url)))
        waiting.start()
        time.sleep(0.5)  # so that the receive waits, most often: without it the test passes as well
        client(OTHER).send_message(QueueUrl=url, MessageBody="now")
        waiting.join()
        self.assertEqual([m["Body"] for m in got], ["now"])

    def test_visibility(self):
        url = self.create(VisibilityTimeout="600")
        self.sqs.send_message(QueueUrl=url, MessageBody="again")
        (first,) = self.receive(url)
        self.assertEqual(self.receive(url, WaitTimeSeconds=0), [])
        self.sqs.change_message_visibility(QueueUrl=url, ReceiptHandle=first["ReceiptHandle"], VisibilityTimeout=0)
        (second,) = self.receive(url, VisibilityTimeout=1)
        self.assertEqual((second["MessageId"], second["Attributes"]["ApproximateReceiveCount"]), (first["MessageId"], "2"))
        (third,) = self.receive(url)  # after a second
        self.assertEqual(third["Attributes"]["ApproximateReceiveCount"], "3")
        self.sqs.delete_message(QueueUrl=url, ReceiptHandle=third["ReceiptHandle"])
        with self.assertRaises(self.sqs.exceptions.MessageNotInflight):
            self.sqs.change_message_visibility(QueueUrl=url, ReceiptHandle=third["ReceiptHandle"], VisibilityTimeout=5)

    def test_a_fifo_queue(self):
        url = self.create(".fifo", FifoQueue="true", ContentBasedDeduplication="true")
        for body, group in (("1", "a"), ("2", "a"), ("1", "b"), ("3", "b")):  # the second 1 is a duplicate
            self.sqs.send_message(QueueUrl=url, MessageBody=body, MessageGroupId=group)
        other = client(OTHER)
        bodies = []
        while len(bodies) < 3:
            for m in self.receive(url, MaxNumberOfMessages=10):
                bodies.append(m["Attributes"]["MessageGroupId"] + m["Body"])
                self.assertTrue(m["Attributes"]["SequenceNumber"].isdigit())
                other.delete_message(QueueUrl=url, ReceiptHandle=m["ReceiptHandle"])
        self.assertEqual(sorted(bodies), ["a1", "a2", "b3"])
        self.assertLess(bodies.index("a1"), bodies.index("a2"))
        self.assertEqual(self.receive(url, WaitTimeSeconds=0), [])
        one = self.sqs.send_message(QueueUrl=url, MessageBody="x", MessageGroupId="a", MessageDeduplicationId="d")
        two = other.send_message(QueueUrl=url, MessageBody="y", MessageGroupId="a", MessageDeduplicationId="d")
        self.assertEqual((one["MessageId"], one["SequenceNumber"]), (two["MessageId"], two["SequenceNumber"]))
        self.refused("MissingParameter", self.sqs.send_message, QueueUrl=url, MessageBody="x")

    def test_dead_letters_and_their_way_back(self):
        dead = self.create("-dead")
        url = self.create(RedrivePolicy=json.dumps({"deadLetterTargetArn": self.arn(dead), "maxReceiveCount": 2}))
        self.assertEqual(self.sqs.list_dead_letter_source_queues(QueueUrl=dead)["queueUrls"], [url])
        self.sqs.send_message(QueueUrl=url, MessageBody="poison", MessageAttributes={"a": {"DataType": "String", "StringValue": "b"}})
        for _ in range(2):
            (m,) = self.receive(url)
            self.sqs.change_message_visibility(QueueUrl=url, ReceiptHandle=m["ReceiptHandle"], VisibilityTimeout=0)
        self.assertEqual(self.receive(url, WaitTimeSeconds=0), [])
        (m,) = self.receive(dead)
        self.assertEqual((m["Body"], m["MessageAttributes"]["a"]["StringValue"]), ("poison", "b"))
        self.sqs.change_message_visibility(QueueUrl=dead, ReceiptHandle=m["ReceiptHandle"], VisibilityTimeout=0)
        if not hasattr(self.sqs, "start_message_move_task"):
            return  # boto3 before 1.26.148, as that of Debian 12, has no move tasks; the test for Node.js has them
        handle = self.sqs.start_message_move_task(SourceArn=self.arn(dead))["TaskHandle"]
        self.assertTrue(handle)
        (m,) = self.receive(url)
        self.assertEqual(m["Body"], "poison")
        (task,) = self.sqs.list_message_move_tasks(SourceArn=self.arn(dead))["Results"]
        self.assertEqual((task["SourceArn"], task["Status"], task["ApproximateNumberOfMessagesMoved"]), (self.arn(dead), "COMPLETED", 1))
        with self.assertRaises(self.sqs.exceptions.ResourceNotFoundException):
            self.sqs.cancel_message_move_task(TaskHandle=handle)

    def test_errors_are_the_classes_of_botocore(self):
        url = self.create()
        none = url + "-none"
        e = self.sqs.exceptions
        entry = {"Id": "a", "MessageBody": "x"}
        for expected, call, arguments in (
            (e.QueueDoesNotExist, self.sqs.send_message, {"QueueUrl": none, "MessageBody": "x"}),
            (e.QueueDoesNotExist, self.sqs.receive_message, {"QueueUrl": none}),
            (e.QueueNameExists, self.sqs.create_queue, {"QueueName": self.name, "Attributes": {"VisibilityTimeout": "9"}}),
            (e.EmptyBatchRequest, self.sqs.send_message_batch, {"QueueUrl": url, "Entries": []}),
            (e.BatchEntryIdsNotDistinct, self.sqs.send_message_batch, {"QueueUrl": url, "Entries": [entry, entry]}),
            (e.TooManyEntriesInBatchRequest, self.sqs.send_message_batch, {"QueueUrl": url, "Entries": [{**entry, "Id": str(i)} for i in range(11)]}),
            (e.InvalidBatchEntryId, self.sqs.send_message_batch, {"QueueUrl": url, "Entries": [{**entry, "Id": "a b"}]}),
            (e.BatchRequestTooLong, self.sqs.send_message_batch, {"QueueUrl": url, "Entries": [{"Id": i, "MessageBody": "x" * 600000} for i in "ab"]}),
            (e.InvalidMessageContents, self.sqs.send_message, {"QueueUrl": url, "MessageBody": "\x01"}),
            (e.InvalidAttributeName, self.sqs.get_queue_attributes, {"QueueUrl": url, "AttributeNames": ["Colour"]}),
            (e.ReceiptHandleIsInvalid, self.sqs.delete_message, {"QueueUrl": url, "ReceiptHandle": "%"}),
            (e.UnsupportedOperation, self.sqs.add_permission, {"QueueUrl": url, "Label": "l", "AWSAccountIds": ["1"], "Actions": ["*"]}),
        ):
            with self.subTest(expected.__name__), self.assertRaises(expected):
                call(**arguments)
        self.refused("InvalidParameterValue", self.sqs.receive_message, QueueUrl=url, MaxNumberOfMessages=11)
        self.refused("InvalidAttributeValue", self.sqs.set_queue_attributes, QueueUrl=url, Attributes={"DelaySeconds": "901"})

    def test_a_wrong_secret_is_refused(self):
        self.refused("SignatureDoesNotMatch", client(aws_secret_access_key="wrong", aws_access_key_id=os.environ["AWS_ACCESS_KEY_ID"]).list_queues)
        self.refused("InvalidClientTokenId", client(aws_secret_access_key="wrong", aws_access_key_id="AKIANONE").list_queues)

    def test_the_resources_of_boto3(self):
        sqs = boto3.resource("sqs", endpoint_url=URL)
        queue = sqs.create_queue(QueueName=self.name)
        self.addCleanup(queue.delete)
        queue.send_message(MessageBody="a")
        (message,) = queue.receive_messages(WaitTimeSeconds=20)
        self.assertEqual(message.body, "a")
        message.change_visibility(VisibilityTimeout=50)
        message.delete()
        queue.load()
        self.assertEqual(queue.attributes["ApproximateNumberOfMessagesNotVisible"], "0")
        self.assertEqual(sqs.get_queue_by_name(QueueName=self.name).url, queue.url)
        self.assertEqual([q.url for q in sqs.queues.filter(QueueNamePrefix=self.name)], [queue.url])

    def test_lists_are_paged(self):
        urls = [self.create(f"-{i}") for i in range(5)]
        pages = self.sqs.get_paginator("list_queues").paginate(QueueNamePrefix=self.name, PaginationConfig={"PageSize": 2})
        listed = [page["QueueUrls"] for page in pages]
        self.assertEqual([len(page) for page in listed], [2, 2, 1])
        self.assertEqual(sum(listed, []), urls)


if __name__ == "__main__":
    unittest.main()
