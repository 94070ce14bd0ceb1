"""The provider kind `aws`, Amazon EC2."""

from collections.abc import Collection, Iterator, Mapping

from fleet.clouds.aws.machines import AwsMachines, AwsPrices, AwsShared
from fleet.clouds.cloud import Cloud
from fleet.engines.projects import ProviderAccount
from fleet.ports import PriceReader, Publisher
from fleet.schema.model import AwsProvider


class Aws(Cloud[AwsProvider]):
    """An AWS account in one region."""

    has_shared_stack = True

    def open(self) -> AwsMachines:
        """Return the object that lists instances by tags and changes them."""
        return AwsMachines(self.declared)

    def account(self, labels: Mapping[str, str]) -> ProviderAccount:
        """Return the data for the Pulumi engine. Unrecorded shared resources are deleted."""
        return ProviderAccount(
            self.machines,
            config={"aws:region": self.declared.region},
            environment=self.environment,
            inputs={"notes": labels},
            clear=AwsShared(self.declared.region).clear,
        )

    def todays_prices(self, types: Collection[str], spot: Collection[str]) -> PriceReader:
        """Return the reader of AWS's price list and of spot prices."""
        return AwsPrices(self.declared.region, types, spot)

    def publisher(self) -> Publisher:
        """Return the publisher of AMIs."""
        from fleet.clouds.aws.images import AwsPublisher

        return AwsPublisher(self.site.fleet.fleet, self.declared.region)

    def unchecked(self) -> Iterator[tuple[str, str]]:
        """Yield quotas as unchecked: fleet does not require the permission to read quotas."""
        command = "aws service-quotas list-service-quotas --service-code ec2 --region"
        yield "quotas", f"`{command} {self.declared.region}`"
